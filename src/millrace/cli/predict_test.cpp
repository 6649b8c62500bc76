// Tests of `predict` in this process, with a recipe of pictures: its memory, its numbers, its messages about input.
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <iostream>

#include "millrace/base/error.h"
#include "millrace/base/philox.h"
#include "millrace/cli/inspect/tensor_file.h"
#include "millrace/cli/shared/command.h"
#include "millrace/data/sources/memory_source.h"
#include "millrace/device/tensor_memory.h"
#include "millrace/snapshot/snapshot.h"
#include "millrace/train/run/run.h"
#include "tests/support/refusal.h"

namespace millrace::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr std::int64_t kPictures = 4000;
constexpr std::int64_t kSide = 32;

struct PictureConfig {
  std::int64_t pictures = 300;
  static consteval auto fields() { return std::tuple{config::field<&PictureConfig::pictures>("How many.").min(1)}; }
};
struct Sections {
  PictureConfig recipe;
  static consteval auto fields() { return std::tuple{config::field<&Sections::recipe>("The pictures.")}; }
};

std::vector<float> pixels(std::int64_t pictures) {
  Philox random(7);
  std::vector<float> values(static_cast<std::size_t>(pictures * 3 * kSide * kSide));
  for (float& value : values) value = static_cast<float>(random.uniform());
  return values;
}

std::vector<at::Tensor> seen_by_eval;

struct Net final : torch::nn::Module {
  Net() {
    register_module("a", a);
    register_module("b", b);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& x) { return head->forward(b->forward(a->forward(x).relu()).relu().mean({2, 3})); }
  torch::nn::Conv2d a{torch::nn::Conv2dOptions(3, 8, 3).padding(1)};
  torch::nn::Conv2d b{torch::nn::Conv2dOptions(8, 8, 3).stride(2).padding(1)};
  torch::nn::Linear head{8, 10};
};

class PictureRecipe final : public Recipe {
 public:
  PictureRecipe(const Sections& sections, const Context&) : pictures_(sections.recipe.pictures) {}
  data::Pipeline data(Split) override {
    return data::single(
        std::make_shared<data::MemorySource>(std::vector{data::memory_array("x", {3, kSide, kSide}, pixels(pictures_))}));
  }
  torch::nn::Module& model() override { return net_; }
  std::vector<Objective> objectives() override {
    Objective objective;
    objective.loss = [this](const Batch& batch, const StepContext&) {
      const at::Tensor logits = net_.forward(batch["x"]);
      seen_by_eval.push_back(logits.detach().to(at::kFloat));
      return Loss{.terms = {{.sum = logits.sum(), .count = at::full({}, 1.0), .nominal_count = 1.0}}};
    };
    return {objective};
  }
  Tensors predict(const Tensors& inputs) override {
    const at::Tensor logits = net_.forward(inputs.at("x"));
    EXPECT_FALSE(logits.requires_grad());
    return {{"logits", logits}};
  }

 private:
  std::int64_t pictures_;
  Net net_;
};

class PredictTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ =
        fs::path(testing::TempDir()) / ("predict_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(root_);
    fs::create_directories(root_);
    entry_ = entry_of<PictureRecipe, Sections>("pictures", "Pictures.");
    entry_.predicts = {.inputs = {{"x", DType::f32, "[rows,3,32,32]", "pixels"}},
                       .outputs = {{"logits", DType::f32, "[rows,10]", "of the classes"}}};
    Tensors weights;
    Context context;
    auto made = entry_.make(Json{{"recipe", {{"pictures", 1}}}}, context);
    for (const auto& parameter : made->model().named_parameters()) weights[parameter.key()] = parameter.value().detach();
    for (const auto& [name, weight] : weights) model_bytes_ += weight.nbytes();
    snapshot::write_tensors(Fs::real(), root_ / "w.safetensors", weights);
  }
  void TearDown() override { fs::remove_all(root_); }

  void write_pictures(const std::string& name, std::int64_t count, const std::string& tensor = "x") {
    std::vector<float> values = pixels(count);
    TensorWriter writer(root_ / name, tensor_format(name, "--output"));
    writer.append({{tensor, at::from_blob(values.data(), {count, 3, kSide, kSide}, at::kFloat)}});
    static_cast<void>(writer.finish());
  }
  int predict(const std::string& input, const std::string& output, std::vector<std::string> more = {}) {
    std::vector<std::string> words = {"--from",   (root_ / "w.safetensors").string(), "--input", (root_ / input).string(),
                                      "--output", (root_ / output).string()};
    words.insert(words.end(), more.begin(), more.end());
    return kPredict.run({.recipes = std::span(&entry_, 1), .words = std::move(words)});
  }
  std::string refusal(const std::string& input, const std::string& output, std::vector<std::string> more = {}) {
    return millrace::refusal([&] { predict(input, output, std::move(more)); });
  }

  fs::path root_;
  Entry entry_;
  std::uint64_t model_bytes_ = 0;
};

TEST_F(PredictTest, MemoryIsThatOfOneBatch) {
  device::count_tensor_memory();
  const std::vector<std::string> small = {"--batch-size=64", "--device.name=cpu"};
  for (const char* suffix : {".npy", ".npz", ".safetensors", ".h5"}) {
    const auto peak = [&](std::int64_t pictures) {
      const std::string input = std::to_string(pictures) + suffix;
      write_pictures(input, pictures);
      const std::uint64_t before = device::tensor_memory().live_bytes;
      device::reset_peak_tensor_memory();
      EXPECT_EQ(predict(input, "out" + std::string(suffix), small), 0);
      return device::tensor_memory().peak_bytes - before - model_bytes_;
    };
    static_cast<void>(peak(64));  // a first call, because libraries keep some memory after it
    const std::uint64_t one = peak(64);
    const std::uint64_t all = peak(kPictures);
    EXPECT_LE(static_cast<double>(all), 1.2 * static_cast<double>(one)) << suffix;
    std::cout << suffix << ": one batch of 64 " << one << " bytes beyond the model, 4,000 pictures " << all << '\n';
  }
}

TEST_F(PredictTest, NumbersAreThoseOfTheForwardPassOfEval) {
  write_pictures("in.npy", 300);
  for (const char* format : {"fp32", "bf16"}) {
    const std::vector<std::string> flags = {"--batch_size=96", "--device.name=cpu", std::string("--precision.dtype=") + format};
    EXPECT_EQ(predict("in.npy", "out.npy", flags), 0);
    const at::Tensor predicted = open_tensors(root_ / "out.npy", TensorFormat::npy, "y")->read(0, 0, -1);
    seen_by_eval.clear();
    std::vector<std::string> words = flags;
    words.insert(words.end(), {"--from", (root_ / "w.safetensors").string()});
    EXPECT_EQ(kEval.run({.recipes = std::span(&entry_, 1), .words = words}), 0);
    EXPECT_TRUE(at::equal(predicted, at::cat(seen_by_eval))) << format;
  }
}

TEST_F(PredictTest, SaysWhatWasExpected) {
  write_pictures("one.npz", 2, "pictures");
  EXPECT_EQ(refusal("one.npz", "out.npz"), "UsageError  the input has no tensor \"x\"\n  where    " +
                                               (root_ / "one.npz").string() +
                                               " holds \"pictures\" f32 [2,3,32,32]\n  next     recipe pictures takes \"x\" f32 "
                                               "[rows,3,32,32]; millrace predict pictures --help says more");
  TensorWriter writer(root_ / "gray.npz", TensorFormat::npz);
  writer.append({{"x", at::full({2, 1, kSide, kSide}, 1.0)}});
  static_cast<void>(writer.finish());
  EXPECT_THAT(refusal("gray.npz", "out.npz"), HasSubstr("tensor \"x\" f32 [2,1,32,32] is not what recipe pictures takes"));
  write_pictures("in.npy", 2);
  EXPECT_THAT(refusal("in.npy", "out.png"), HasSubstr("flag --output"));
  EXPECT_THAT(refusal("in.npy", "out.npy", {"--optim.learning_rate=1"}),
              HasSubstr("key optim.learning_rate has no effect on millrace predict"));
  EXPECT_FALSE(fs::exists(root_ / "out.npy"));
}

TEST_F(PredictTest, NotANumberIsSaid) {
  TensorWriter writer(root_ / "in.npz", TensorFormat::npz);
  at::Tensor x = at::full({300, 3, kSide, kSide}, 1.0, at::kDouble);
  for (const std::int64_t row : {260, 270}) x[row][0][0][0] = std::numeric_limits<double>::quiet_NaN();
  writer.append({{"x", x}, {"other", x.narrow(1, 0, 1).contiguous()}});
  static_cast<void>(writer.finish());
  testing::internal::CaptureStderr();
  EXPECT_EQ(predict("in.npz", "out.npy", {"--batch-size=128"}), 0) << "f64 becomes what the recipe takes";
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("2 elements of input \"x\" are not a number (NaN), the first in row 260"));
  EXPECT_THAT(said, HasSubstr("the recipe does not take \"other\", which is left out"));
}

TEST_F(PredictTest, HelpNamesTheTensors) {
  const std::string help = command_help(kPredict, {.recipes = std::span(&entry_, 1), .words = {"pictures", "--help"}});
  EXPECT_THAT(help, testing::ContainsRegex("input +x +f32 +\\[rows,3,32,32\\] +pixels\n +output +logits +f32 +\\[rows,10\\]"));
}

}  // namespace
}  // namespace millrace::cli
