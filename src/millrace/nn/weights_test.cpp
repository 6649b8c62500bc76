#include "millrace/nn/weights.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "millrace/base/error.h"
#include "millrace/base/fs.h"
#include "millrace/core/scalar_type.h"
#include "millrace/format/pt.h"
#include "millrace/format/safetensors.h"
#include "tests/support/refusal.h"

namespace millrace::nn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using NamedTensors = std::map<std::string, at::Tensor>;

void write(const std::string& file, const NamedTensors& tensors) {
  std::vector<Field> fields;
  std::vector<at::Tensor> values;
  for (const auto& [name, value] : tensors) {
    fields.push_back({name, dtype_of(value.scalar_type()).value(), Shape(value.sizes().begin(), value.sizes().end())});
    values.push_back(value.contiguous());
  }
  const format::TensorBytes bytes_of = [&](std::size_t i) {
    return std::as_bytes(std::span(static_cast<const char*>(values[i].const_data_ptr()), values[i].nbytes()));
  };
  const auto out = Fs::real().create(file);
  file.ends_with(".pt") ? format::write_pt(*out, fields, bytes_of)
                        : static_cast<void>(format::write_safetensors(*out, fields, bytes_of));
  out->close();
}

// A linear layer from 3 to 2, and a norm.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("first", first);
    register_module("norm", norm);
  }
  at::Tensor forward(const at::Tensor& x) { return norm(first(x)); }
  torch::nn::Linear first{3, 2};
  torch::nn::BatchNorm1d norm{2};
};
TORCH_MODULE(Net);

NamedTensors sound(const std::string& before = "") {
  return {{before + "first.weight", at::arange(6).to(at::kFloat).reshape({2, 3})},
          {before + "first.bias", at::full({2}, 7.0)},
          {before + "norm.weight", at::full({2}, 2.0)},
          {before + "norm.bias", at::full({2}, 3.0)},
          {before + "norm.running_mean", at::full({2}, 4.0)},
          {before + "norm.running_var", at::full({2}, 5.0)},
          {before + "norm.num_batches_tracked", at::full({}, 6, at::kLong)}};
}

template <class Call>
std::string parts_of(const Call& call) {
  const Message message = refusal_message<DataError>(call);
  return message.what + "\n  where    " + message.where + "\n  next     " + message.next;
}

std::string refused(const NamedTensors& tensors, const LoadOptions& options = {}) {
  write("w.pt", tensors);
  Net net;
  return parts_of([&] { (void)load_weights(*net, "w.pt", options); });
}

TEST(LoadWeights, ParametersAndBuffersComeFromBothKindsOfFile) {
  for (const char* file : {"w.pt", "w.safetensors"}) {
    write(file, sound());
    Net net;
    const LoadedWeights loaded = load_weights(*net, file);
    EXPECT_EQ(loaded.taken, 7U);
    EXPECT_THAT(loaded.notices, IsEmpty());
    EXPECT_TRUE(at::equal(net->first->weight, sound()["first.weight"])) << file;
    EXPECT_TRUE(at::equal(net->norm->running_var, at::full({2}, 5.0F))) << file;
    EXPECT_EQ(net->norm->num_batches_tracked.item<std::int64_t>(), 6) << file;
    EXPECT_TRUE(net->first->weight.requires_grad()) << "weights to begin from are trained";
  }
}

TEST(LoadWeights, NamesOfLightningDdpAndCompileArePassedOver) {
  for (const char* before : {"module.", "_orig_mod.", "model.", "state_dict.model.", "model_state_dict.module._orig_mod."}) {
    NamedTensors tensors = sound(before);
    if (std::string(before).find("state_dict") != std::string::npos) tensors["optimizer_states.0.exp_avg"] = at::zeros({2});
    write("w.pt", tensors);
    Net net;
    const LoadedWeights loaded = load_weights(*net, "w.pt");
    EXPECT_EQ(loaded.taken, 7U) << before;
    EXPECT_TRUE(at::equal(net->first->bias, at::full({2}, 7.0F))) << before;
  }
  write("w.pt", sound("model."));
  Net net;
  EXPECT_THAT(
      load_weights(*net, "w.pt").notices,
      ElementsAre("these parts of the file's weight names are ignored (wrappers such as torch.compile add them): \"model.\""));
}

TEST(LoadWeights, APartIsChosenByItsPrefixAlsoBehindAWrapper) {
  for (const char* wrapper : {"", "state_dict.model."}) {
    NamedTensors tensors = sound(std::string(wrapper) + "encoder.");
    tensors[std::string(wrapper) + "head.weight"] = at::zeros({9, 9});
    write("w.safetensors", tensors);
    Net net;
    EXPECT_EQ(load_weights(*net, "w.safetensors", {.prefix = "encoder."}).taken, 7U) << wrapper;
    EXPECT_TRUE(at::equal(net->norm->bias, at::full({2}, 3.0F))) << wrapper;
  }
  EXPECT_EQ(refused(sound("encoder."), {.prefix = "encodr."}),
            "no tensor of the file has a name that begins with \"encodr.\"\n  where    w.pt\n"
            "  next     choose another prefix; the names begin with \"encoder.\"");
}

TEST(LoadWeights, BeginningsOfNamesAreReplacedTheLongestFirst) {
  NamedTensors tensors;
  for (const auto& [name, value] : sound()) tensors["net." + name] = value;
  tensors["net.bn.weight"] = at::full({2}, 9.0);
  tensors.erase("net.norm.weight");
  write("w.pt", tensors);
  Net net;
  (void)load_weights(*net, "w.pt", {.rename = {{"net.", ""}, {"net.bn.", "norm."}}});
  EXPECT_TRUE(at::equal(net->norm->weight, at::full({2}, 9.0F)));
  EXPECT_TRUE(at::equal(net->norm->bias, at::full({2}, 3.0F)));
}

TEST(LoadWeights, TwoTensorsThatGetOneNameAreRefused) {
  NamedTensors tensors = sound();
  tensors["old.norm.weight"] = at::full({2}, 9.0);
  EXPECT_THAT(refused(tensors, {.rename = {{"old.", ""}}}), HasSubstr("1 unexpected\n\"old.norm.weight\" [2] is not part"));
}

TEST(LoadWeights, OtherNumberFormatsBecomeTheModulesAndAreTold) {
  NamedTensors tensors = sound();
  tensors["first.weight"] = tensors["first.weight"].to(at::kHalf);
  tensors["first.bias"] = tensors["first.bias"].to(at::kDouble);
  write("w.pt", tensors);
  Net net;
  EXPECT_THAT(load_weights(*net, "w.pt").notices, ElementsAre("1 tensor of f16 became f32", "1 tensor of f64 became f32"));
  EXPECT_EQ(net->first->weight.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(net->first->weight, sound()["first.weight"]));
}

TEST(LoadWeights, WhatIsMissingUnexpectedOrOfAnotherShapeIsNamedWithTheNearestName) {
  NamedTensors other_name = sound();
  other_name["frist.bias"] = other_name["first.bias"];
  other_name.erase("first.bias");
  EXPECT_EQ(refused(other_name),
            "the weights of the file do not fit the module: 1 missing, 1 unexpected\n"
            "\"first.bias\" [2] is missing; the nearest name of the file is \"frist.bias\"\n"
            "\"frist.bias\" [2] is not part of the module\n"
            "  where    w.pt\n  next     map the names to the module's with .rename = {{\"frist.\", \"first.\"}}");
  write("w.pt", other_name);
  Net mended;  // the remedy in the message works
  EXPECT_EQ(load_weights(*mended, "w.pt", {.rename = {{"frist.", "first."}}}).taken, 7U);

  NamedTensors other_shape = sound();
  other_shape["first.weight"] = at::zeros({2, 4});
  EXPECT_EQ(refused(other_shape, {.strict = false}),
            "the weights of the file do not fit the module: 1 of another shape or type\n"
            "\"first.weight\" is [2,4] in the file and [2,3] in the module\n"
            "  where    w.pt\n  next     make the module with the file's sizes and types: millrace inspect w.pt lists them");
  NamedTensors integers = sound();
  integers["first.bias"] = at::ones({2}, at::kLong);
  EXPECT_THAT(refused(integers), HasSubstr("\"first.bias\" is i64 in the file and f32 in the module"));

  NamedTensors more = sound();
  more["head.weight"] = at::zeros({5});
  EXPECT_THAT(refused(more), HasSubstr("1 unexpected\n\"head.weight\" [5] is not part of the module"));
  EXPECT_THAT(refused(more), HasSubstr("next     ignore unexpected tensors with .strict = false"));
}

TEST(LoadWeights, NothingIsChangedWhereAFileDoesNotFit) {
  NamedTensors less = sound();
  less.erase("norm.running_var");
  write("w.pt", less);
  Net net;
  const at::Tensor before = net->first->weight.detach().clone();
  EXPECT_THROW((void)load_weights(*net, "w.pt"), DataError);
  EXPECT_TRUE(at::equal(net->first->weight, before));
  const LoadedWeights loaded = load_weights(*net, "w.pt", {.strict = false});
  EXPECT_THAT(loaded.missing, ElementsAre("norm.running_var"));
  EXPECT_EQ(loaded.taken, 6U);
  EXPECT_TRUE(at::equal(net->norm->running_var, at::full({2}, 1.0F))) << "it keeps its value";
}

TEST(LoadWeights, AFileOfNothingThatFitsIsRefusedEvenIfGapsAreAllowed) {
  EXPECT_THAT(refused({{"elsewhere", at::zeros({2})}}, {.strict = false}), HasSubstr("7 missing, 1 unexpected"));
}

TEST(LoadWeights, TwoTensorsThatMayBeMeantAreNotGuessedAt) {
  NamedTensors twice = sound("module.");
  twice.merge(sound("model."));
  EXPECT_THAT(refused(twice), HasSubstr("7 missing, 14 unexpected"));
}

TEST(LoadWeights, AFolderAndAMissingFileAreRefused) {
  Net net;
  std::filesystem::create_directories("runs/teacher");
  EXPECT_EQ(parts_of([&] { (void)load_weights(*net, "runs/teacher"); }),
            "runs/teacher is a folder, but weights are read from a file\n  where    runs/teacher\n"
            "  next     if it is the folder of a run, write its weights to a file: millrace export --from runs/teacher --to "
            "weights.safetensors");
  EXPECT_THAT(parts_of([&] { (void)load_weights(*net, "gone.pt"); }), HasSubstr("gone.pt"));
}

TEST(Frozen, APartIsNeitherTrainedNorInTrainModeAndPassesGradientsOn) {
  write("w.pt", sound("net."));
  struct Model : torch::nn::Module {
    Frozen<NetImpl> part{std::filesystem::path("w.pt"), LoadOptions{.prefix = "net."}};
    torch::nn::Linear head{3, 3};
    Model() {
      register_module("part", part);
      register_module("head", head);
    }
  };
  const auto model = std::make_shared<Model>();
  const std::vector<NamedPart> parts = frozen_parts(*model);
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(parts[0].name, "part");
  EXPECT_EQ(parts[0].part->identity(), "") << "the constructor opens no file";
  (void)parts[0].part->load_file(*parts[0].module);
  EXPECT_TRUE(at::equal(model->part->first->bias, at::full({2}, 7.0F)));
  model->train();
  EXPECT_TRUE(model->head->is_training());
  EXPECT_FALSE(model->part->is_training());
  EXPECT_FALSE(model->part->norm->is_training());
  model->part->forward(model->head(at::ones({4, 3}))).sum().backward();
  EXPECT_TRUE(model->head->weight.grad().defined());
  EXPECT_FALSE(model->part->first->weight.grad().defined());
  EXPECT_TRUE(at::equal(model->part->norm->running_mean, at::full({2}, 4.0F))) << "its statistics stay";
}

TEST(Frozen, ItsIdentityIsOfItsWeightsWhereverTheyLie) {
  const auto identity = [](const std::string& file, const NamedTensors& tensors) {
    write(file, tensors);
    Frozen<NetImpl> part{std::filesystem::path(file), LoadOptions{}};
    (void)part->load_file(*part);
    return part->identity();
  };
  const std::string first = identity("w.pt", sound());
  EXPECT_EQ(first.size(), 64U);
  EXPECT_EQ(identity("w.safetensors", sound("model.")), first);
  NamedTensors other = sound();
  other["norm.running_mean"][1] = 4.5;
  EXPECT_NE(identity("w.pt", other), first);
}

}  // namespace
}  // namespace millrace::nn
