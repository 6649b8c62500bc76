// The plain C++ call, and the use of a trained model.
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <fstream>

#include "millrace/base/error.h"
#include "millrace/data/sources/memory_source.h"
#include "millrace/snapshot/snapshot.h"
#include "millrace/snapshot/tensor_file.h"
#include "millrace/train/run/train.h"
#include "millrace/train/run_folder/run_folder.h"
#include "tests/support/refusal.h"
#include "toys.h"

namespace millrace {
namespace {

using testing::HasSubstr;

data::Pipeline line_points() {
  Philox random(5);
  std::vector<float> x;
  std::vector<float> y;
  for (int i = 0; i < 200; ++i) {
    x.push_back(static_cast<float>(random.normal()));
    y.push_back(3.0F * x.back() - 1.0F);
  }
  return data::single(std::make_shared<data::MemorySource>(
      std::vector{data::memory_array("x", {1}, std::move(x)), data::memory_array("y", {1}, std::move(y))}));
}

TEST(PlainCall, TrainsAModuleInPlace) {
  torch::manual_seed(1);
  torch::nn::Linear line(1, 1);
  RunConfig config;
  config.data.batch_size = 20;
  config.optim.learning_rate = 0.05;
  config.optim.weight_decay = 0.0;
  config.train.epochs = 30;
  config.precision.dtype = Precision::fp32;
  const auto loss = [&](const Batch& batch) {
    const at::Tensor error = line(batch["x"]) - batch["y"];
    return Loss{.terms = {{error.square().sum(), at::full({}, static_cast<double>(batch.rows())), 20.0}}};
  };
  const Json summary = train(*line, line_points(), loss, {.config = config, .validation = line_points(), .print = false});
  EXPECT_NEAR(line->weight.item<double>(), 3.0, 0.02);
  EXPECT_NEAR(line->bias.item<double>(), -1.0, 0.02);
  EXPECT_EQ(summary["steps"], 300);
  EXPECT_LT(summary["metrics"]["val_loss"]["last"].get<double>(), 1e-3);
}

// After the first snapshot a second recipe is made of the same module, data and loss.
TEST(PlainCall, ItsFirstSnapshotRaisesNoAlarm) {
  const toys::TemporaryFolder folder;
  torch::nn::Linear line(1, 1);
  RunConfig config;
  config.data.batch_size = 20;
  config.train.epochs = 1;
  config.precision.dtype = Precision::fp32;
  config.run.dir = (folder.path() / "run").string();
  const auto loss = [&](const Batch& batch) {
    const at::Tensor error = line(batch["x"]) - batch["y"];
    return Loss{.terms = {{error.square().sum(), at::full({}, static_cast<double>(batch.rows())), 20.0}}};
  };
  testing::internal::CaptureStderr();
  const Json summary = train(*line, line_points(), loss, {.config = config, .validation = line_points(), .print = false});
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::Not(HasSubstr("snapshot")));
  EXPECT_EQ(summary["snapshots"]["saved"], 1);
  EXPECT_THAT(toys::log_of(folder.path() / "run", "warning"), testing::IsEmpty());
}

struct CentredConfig {
  double centre = 0.5;
  static consteval auto fields() { return std::tuple{config::field<&CentredConfig::centre>("What is taken off.")}; }
};

struct CentredSections {
  CentredConfig toy;
  static consteval auto fields() { return std::tuple{config::field<&CentredSections::toy>("The toy.")}; }
};

// Has a state, and takes none that lacks it.
class Centred final : public Recipe {
 public:
  Centred(const CentredSections& sections, const Context&) : centre_(at::full({}, sections.toy.centre)) {}
  data::Pipeline data(Split) override { return line_points(); }
  torch::nn::Module& model() override { return *net_; }
  std::vector<Objective> objectives() override {
    return {{.loss = [this](const Batch& batch, const StepContext&) {
      const at::Tensor error = net_(batch["x"] - centre_) - batch["y"];
      return Loss{.terms = {{.sum = error.square().sum(), .count = at::full({}, static_cast<double>(batch.rows()))}}};
    }}};
  }
  State state() const override { return {.tensors = {{"centre", centre_}}}; }
  void load_state(const State& state) override { centre_ = state.tensors.at("centre").clone(); }

 private:
  at::Tensor centre_;
  torch::nn::Linear net_{1, 1};
};

TEST(Weights, OfAPlainFileNeedNoStateOfTheRecipe) {
  const toys::TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "weights.safetensors";
  snapshot::write_tensors(Fs::real(), file, {{"weight", at::full({1, 1}, 2.0)}, {"bias", at::full({1}, 0.25)}}, {});
  Entry entry = entry_of<Centred, CentredSections>("centred", "A toy.");
  entry.defaults = {{"data.batch_size", 20}, {"precision.dtype", "fp32"}, {"train.epochs", 1}};
  const RunOutcome run = toys::run(entry, folder.path() / "run", {{"train.weights", file.string()}});
  EXPECT_EQ(run.summary["exit_reason"], "epochs");
  telemetry::Console console(telemetry::Console::Mode::quiet);
  const config::Resolved config = read_config(Fs::real(), folder.path() / "run");
  Loaded loaded = load_for_inference(entry, file, &config, Json::object(), console);
  EXPECT_TRUE(evaluate(loaded, console).metrics.contains("val_loss"));
}

TEST(Inference, ARunsBestSnapshotGivesItsValidationMetrics) {
  const toys::TemporaryFolder folder;
  const Entry entry = toys::grouped_regression();
  const RunOutcome run = toys::run(entry, folder.path(), {{"train.epochs", 10}});
  telemetry::Console console(telemetry::Console::Mode::quiet);
  Loaded loaded = load_for_inference(entry, folder.path(), nullptr, Json::object(), console);
  const auto metrics = evaluate(loaded, console).metrics;
  EXPECT_DOUBLE_EQ(metrics.at("val_loss"), run.summary["metrics"]["val_loss"]["best"].get<double>()) << loaded.which;
  EXPECT_THROW((void)loaded.recipe->predict({}), UsageError);
}

TEST(Inference, TheValidationAfterTheLastSnapshotCountsToo) {
  const toys::TemporaryFolder folder;
  const Entry entry = toys::grouped_regression();
  const RunOutcome run =
      toys::run(entry, folder.path(), {{"train.epochs", 0}, {"train.max_steps", 10}, {"train.validate_every", 4}});
  ASSERT_EQ(run.summary["metrics"]["val_loss"]["best_step"], 10) << "the toy's loss falls";
  telemetry::Console console(telemetry::Console::Mode::quiet);
  Loaded loaded = load_for_inference(entry, folder.path(), nullptr, Json::object(), console);
  EXPECT_EQ(loaded.which, "best snapshot, step 10 of " + folder.path().string());
  EXPECT_DOUBLE_EQ(evaluate(loaded, console).metrics.at("val_loss"), run.summary["metrics"]["val_loss"]["best"].get<double>());
}

TEST(Inference, AFolderWithoutASnapshotIsAClearError) {
  const toys::TemporaryFolder folder;
  telemetry::Console console(telemetry::Console::Mode::quiet);
  EXPECT_THROW((void)load_for_inference(toys::grouped_regression(), folder.path(), nullptr, Json::object(), console),
               SnapshotError);
  EXPECT_THROW((void)load_for_inference(toys::grouped_regression(), folder.path() / "none", nullptr, Json::object(), console),
               UsageError);
}

std::string refusal(const Entry& entry, const std::filesystem::path& from) {
  telemetry::Console console(telemetry::Console::Mode::quiet);
  return millrace::refusal([&] { (void)load_for_inference(entry, from, nullptr, Json::object(), console); });
}

void write(const std::filesystem::path& file, const std::string& text) { std::ofstream(file) << text; }

TEST(Inference, ARunOfAnotherRecipeIsNamedBeforeItIsRead) {
  const toys::TemporaryFolder folder;
  const std::filesystem::path& run = folder.path();
  (void)toys::run(toys::grouped_regression(), run, {{"train.epochs", 1}});
  const std::string own = toys::grouped_regression().name;
  const Entry other = toys::adversarial();
  const std::string expected = "UsageError  the run in " + run.string() + " is of recipe " + own + ", not of " + other.name +
                               "\n  where    --from\n  next     give a run of " + other.name +
                               ", or use this one with its own recipe: millrace eval " + own + " --from " + run.string() +
                               ", or millrace predict " + own + " ...";
  const std::filesystem::path snapshot = snapshot::list(Fs::real(), run).back().path;
  EXPECT_EQ(refusal(other, run), expected);
  EXPECT_EQ(refusal(other, snapshot), expected);
  EXPECT_EQ(refusal(other, snapshot.string() + "/"), expected);
  EXPECT_EQ(refusal(toys::grouped_regression(), snapshot.string() + "/"), "accepted");
  write(run / "summary.json", "{\"recipe\": 5");
  EXPECT_EQ(refusal(other, run), expected) << "the log knows it too";
  write(run / "run.json", "{\"recipe\": \"elsewhere\"}");
  EXPECT_THAT(refusal(toys::grouped_regression(), run), HasSubstr("is of recipe elsewhere, not of " + own)) << "asked first";
  std::filesystem::remove(run / "run.json");
  for (const char* text : {"", "[]", "{\"kind\":[]}\n{\"kind\":\"start\",\"recipe\":null}\n\xff\n"}) {
    write(run / "log.jsonl", text);
    EXPECT_THAT(refusal(other, run), HasSubstr("SnapshotError  the saved weights do not fit the model")) << text;
    EXPECT_EQ(refusal(toys::grouped_regression(), run), "accepted");
  }
}

TEST(Inference, AConfigOfAnotherHandIsRefused) {
  const toys::TemporaryFolder folder;
  (void)toys::run(toys::grouped_regression(), folder.path(), {{"train.epochs", 1}});
  const std::filesystem::path file = folder.path() / "config.json";
  const Json good = Json::parse(Fs::real().read_file(file));
  for (const auto& [place, value] : std::vector<std::pair<const char*, Json>>{{"/values/optim/learning_rate", "fast"},
                                                                              {"/values/device/threads", -4},
                                                                              {"/values/train/off", 5},
                                                                              {"/values/toy", Json::array()},
                                                                              {"/values", 1e308}}) {
    Json json = good;
    json[Json::json_pointer(place)] = value;
    write(file, json.dump());
    EXPECT_THAT(refusal(toys::grouped_regression(), folder.path()), HasSubstr("SnapshotError  the config of the run in"))
        << place;
  }
}

TEST(Inference, ABestStepThatIsNoNumberIsNotBest) {
  const toys::TemporaryFolder folder;
  (void)toys::run(toys::grouped_regression(), folder.path(),
                  {{"train.epochs", 0}, {"train.max_steps", 8}, {"train.validate_every", 4}, {"snapshot.every_steps", 4}});
  const std::filesystem::path file = folder.path() / "summary.json";
  Json summary = Json::parse(Fs::real().read_file(file));
  telemetry::Console console(telemetry::Console::Mode::quiet);
  const auto which = [&](const Json& best, const Json& step) {
    summary["best"] = {{"metric", "val_loss"}, {"is", "lowest"}, {"value", best}, {"step", step}};
    write(file, summary.dump());
    return load_for_inference(toys::grouped_regression(), folder.path(), nullptr, Json::object(), console).which;
  };
  EXPECT_THAT(which(1.5, 4), testing::StartsWith("best snapshot, step 4"));
  EXPECT_THAT(which("nan", 4), testing::StartsWith("newest snapshot, step 8"));
  EXPECT_THAT(which(nullptr, 4), testing::StartsWith("newest snapshot, step 8"));
  EXPECT_THAT(which(1.5, 1e308), testing::StartsWith("newest snapshot, step 8"));
  summary.erase("best");  // as a summary of before was
  const auto which_of_before = [&](const Json& best, const Json& step) {
    summary["metrics"]["val_loss"] = {{"last", best}, {"best", best}, {"best_step", step}};
    write(file, summary.dump());
    return load_for_inference(toys::grouped_regression(), folder.path(), nullptr, Json::object(), console).which;
  };
  EXPECT_THAT(which_of_before(1.5, 4), testing::StartsWith("best snapshot, step 4"));
  EXPECT_THAT(which_of_before("nan", 4), testing::StartsWith("newest snapshot, step 8"));
}

// As somebody who may not look: root may look everywhere.
TEST(Inference, AFolderThatCantBeReadIsNotAnEmptyOne) {
  const toys::TemporaryFolder folder;
  (void)toys::run(toys::grouped_regression(), folder.path(), {{"train.epochs", 1}});
  const std::filesystem::path snapshots = folder.path() / "snapshots";
  const uid_t me = ::geteuid();
  constexpr uid_t kNobody = 65534;
  if (me == 0 && ::seteuid(kNobody) != 0) GTEST_SKIP() << "this process can't be anybody but root";
  const auto become = [me](uid_t user) { EXPECT_TRUE(me != 0 || ::seteuid(user) == 0); };
  const auto told = [&](const std::filesystem::path& closed, std::filesystem::perms permissions) {
    become(0);
    const auto before = std::filesystem::status(closed).permissions();
    std::filesystem::permissions(closed, permissions);
    become(kNobody);
    std::string text = refusal(toys::grouped_regression(), folder.path());
    become(0);
    std::filesystem::permissions(closed, before);
    become(kNobody);
    return text;
  };
  using std::filesystem::perms;
  EXPECT_THAT(told(snapshots, perms::none),
              HasSubstr("can't look for snapshots: list " + snapshots.string() + ": Permission denied"));
  EXPECT_THAT(told(snapshots, perms::owner_read | perms::group_read | perms::others_read),
              HasSubstr("manifest.json: Permission denied"));
  EXPECT_THAT(told(folder.path(), perms::none),
              HasSubstr("can't look for snapshots: Permission denied\n  where    " + snapshots.string()));
  become(0);
}

}  // namespace
}  // namespace millrace
