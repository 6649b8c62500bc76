// Tests of a frozen base in a run: its steps, its optimiser and its snapshots.
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "millrace/snapshot/snapshot.h"
#include "millrace/train/assembly/model_state.h"
#include "millrace/train/step/stepper.h"
#include "millrace/train/step/stepper_state.h"
#include "recipes/image_pairs/loss.h"
#include "recipes/image_pairs/model.h"
#include "recipes/image_pairs/originals/base_weights.h"
#include "tests/support/refusal.h"

namespace millrace::recipes::image_pairs {
namespace {

namespace stdfs = std::filesystem;

RecipeConfig tiny_frozen() {
  RecipeConfig config;
  config.image_size = 16;
  config.patch_size = 8;
  config.vision_width = 8;
  config.vision_layers = 2;
  config.vision_heads = 2;
  config.vision_hidden = 16;
  config.decoder_width = 16;
  config.decoder_layers = 2;
  config.decoder_heads = 2;
  config.decoder_hidden = 24;
  config.vocab_size = 262;
  config.lora_r = 2;
  config.question = "?";
  return config;
}

class FrozenPairs final : public Recipe {
 public:
  explicit FrozenPairs(const RecipeConfig& config) : model_(config, 1, true, {}, at::kCPU, at::kBFloat16) {
    (void)load_base(model_, config);
    prompts_ = to_tensors({prompt_of(config)}, at::kCPU);
  }
  data::Pipeline data(Split) override { return {}; }
  PairModel& model() override { return model_; }
  std::vector<Objective> objectives() override {
    Objective objective;
    objective.optim.learning_rate = 1e-2;
    objective.loss = [this](const Batch& batch, const StepContext&) -> std::optional<Loss> {
      const at::Tensor images = at::tensor({0, 1, 1, 0}, at::kLong).view({2, 2});
      const at::Tensor logits = model_.forward(model_.features(batch["pixels"]), images, prompts_);
      const at::Tensor labels = labels_of_rows(at::tensor({0}, at::kLong), true);
      return Loss{.terms = {answer_loss(logits, labels, 1.2, 1, true), consistency_loss(logits)}};
    };
    return {objective};
  }

 private:
  PairModel model_;
  Prompts prompts_;
};

class FrozenBase : public ::testing::Test {
 protected:
  void SetUp() override {
    file_ = stdfs::path(testing::TempDir()) / ("frozen_base_" + std::to_string(::getpid()) + ".safetensors");
    write_base(1);
    config_.base_weights = {file_.string()};
  }
  void TearDown() override { stdfs::remove(file_); }

  void write_base(std::uint64_t seed) const {
    Tensors tensors;
    for (const auto& item : PairModel(tiny_frozen(), seed).named_parameters()) {
      if (part_of(item.key()) != Part::lora) tensors[item.key()] = item.value().detach();
    }
    snapshot::write_tensors(Fs::real(), file_, tensors);
  }

  RecipeConfig config_ = tiny_frozen();
  stdfs::path file_;
};

TEST_F(FrozenBase, IsMovedByNoStepAndInNoOptimiserAndNoSnapshot) {
  FrozenPairs recipe(config_);
  const Switches switches;
  telemetry::Timeline timeline;
  Stepper stepper(recipe, switches, timeline, {});
  recipe.model().train();
  Tensors before;
  for (const auto& item : recipe.model().named_parameters()) before[item.key()] = item.value().detach().clone();
  const Json frozen = record_of_frozen(recipe.model(), stepper, file_.string());
  for (std::int64_t step = 0; step < 5; ++step) {
    stepper.begin_step(step);
    torch::manual_seed(static_cast<std::uint64_t>(step));
    (void)stepper.accumulate(Batch(Tensors{{"pixels", at::randn({2, 3, 16, 16})}}), {.only = true, .last = true});
    stepper.update();
  }
  const auto saved = model_tensors(recipe.model(), stepper, frozen).at("model");
  const State state = state_of(stepper);
  for (const auto& item : recipe.model().named_parameters()) {
    const bool trained = item.value().requires_grad();
    EXPECT_EQ(at::equal(item.value(), before.at(item.key())), !trained) << item.key();
    EXPECT_EQ(saved.contains(item.key()), trained) << item.key();
    EXPECT_EQ(frozen["sha256"].contains(item.key()), !trained) << item.key();
    const bool optimised = std::ranges::any_of(
        state.tensors, [&](const auto& tensor) { return tensor.first.find(item.key() + ".exp_avg") != std::string::npos; });
    EXPECT_EQ(optimised, trained) << item.key();
  }

  FrozenPairs resumed(config_);
  load_model_tensors(resumed.model(), {{"model", saved}}, frozen);
  for (const auto& item : resumed.model().named_parameters())
    EXPECT_TRUE(at::equal(item.value(), recipe.model().named_parameters()[item.key()])) << item.key();
  write_base(2);  // now the file has other weights
  FrozenPairs other(config_);
  EXPECT_THAT(refusal<SnapshotError>([&] {
                load_model_tensors(other.model(), {{"model", saved}}, frozen);
              }),
              testing::AllOf(testing::HasSubstr("the frozen weight"), testing::HasSubstr(file_.string())))
      << "another base was taken for the same";
  // A given record replaces the comparison of values; the record here is of other values.
  load_model_tensors(other.model(), {{"model", saved}}, frozen, frozen);
  const Json of_other = record_of_frozen(other.model(), stepper, file_.string());
  EXPECT_THROW(load_model_tensors(resumed.model(), {{"model", saved}}, frozen, of_other), SnapshotError);
}

}  // namespace
}  // namespace millrace::recipes::image_pairs
