// Recompute changes no bit of a shipped recipe's step, and a budget's prediction comes true.
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "millrace/core/random.h"
#include "millrace/device/tensor_memory.h"
#include "millrace/measure/step_bench.h"
#include "millrace/memory/block.h"
#include "millrace/train/run/run.h"
#include "recipes/language_model/model.h"
#include "recipes/registry.h"

namespace millrace {
namespace {

const Entry& recipe(const std::string& name) {
  const auto all = recipes::all();
  return *std::find_if(all.begin(), all.end(), [&](const Entry& entry) { return entry.name == name; });
}

struct Small {
  const char* name;
  const char* recipe;
  const char* precision;
  Json config;
};

std::vector<Small> small_shapes() {
  const Json words = {{"recipe.model_embd", 96}, {"recipe.model_layer", 5}, {"recipe.model_head", 3}};
  // The layout is said where a recipe has two: each holds something else and has bits of its own, and which a trial finds faster
  // is not the same each time. Sizes are such that no single operation's scratch space is most of what a step takes.
  const Json sky = {{"recipe.filters", 8}, {"recipe.ra_keep", 32}, {"device.layout", "contiguous"}};
  const Json eyes = {{"recipe.units", {6, 4}}, {"recipe.adapter.grid_size", 31}, {"device.layout", "contiguous"}};
  const Json small_sky = {{"recipe.filters", 4}, {"recipe.ra_keep", 32}, {"device.layout", "channels_last"}};
  const auto volume = [](const char* layout) {
    return Json{
        {"recipe.channels", {8, 16, 16}}, {"recipe.norm_num_groups", 4}, {"recipe.disc_channels", 4}, {"device.layout", layout}};
  };
  const Json pairs = {{"recipe.decoder_width", 128}, {"recipe.decoder_hidden", 344}};
  return {{"decoder", "language_model", "fp32", words},
          {"decoder_bf16", "language_model", "bf16", words},
          {"unet", "cosmology", "fp32", sky},
          {"unet_bf16", "cosmology", "bf16", small_sky},
          {"twin", "neural_response", "fp32", eyes},
          {"twin_bf16", "neural_response", "bf16", eyes},
          {"volumes", "autoencoder_3d", "fp32", volume("contiguous")},
          {"volumes_bf16", "autoencoder_3d", "bf16", volume("channels_last")},
          {"pairs", "image_pairs", "fp32", pairs},
          {"pairs_bf16", "image_pairs", "bf16", pairs}};
}

class SmallShape : public testing::TestWithParam<std::size_t> {
 protected:
  // The third step's loss comes from gradients and running statistics of the ones before; the second is the first that has the
  // optimiser's moments, so that a peak needs no more. The kernels are said: two trials may choose two ways, and each has bits
  // and scratch space of its own.
  Json steps(const Json& more, int count) {
    const Small shape = small_shapes()[GetParam()];
    StepBench::Options options{.precision = shape.precision, .threads = 1, .overrides = shape.config};
    options.overrides.update(more);
    options.overrides["device.kernels"] = "ours";
    // What a trial of bf16 finds is heeded as long as this process lives: another one of the same convolutions would only take
    // time.
    static std::set<std::size_t> tried;
    if (!tried.insert(GetParam()).second) options.off = {"tried_convolutions"};
    StepBench bench(recipe(shape.recipe), options);
    std::vector<double> ms;
    for (int i = 0; i < count; ++i) ms.push_back(bench.step());
    return bench.report(ms);
  }
};

// Both in one test, because they look at the same steps, and what a process keeps for later is part of a peak.
TEST_P(SmallShape, RecomputedStepsEndInTheSameLossAndABudgetIsMetAsPredicted) {
  const Json steps_without = steps({{"memory.recompute", Json::array({"none"})}}, 3);
  const std::uint64_t live = device::tensor_memory().live_bytes;
  const Json steps_with = steps({{"memory.recompute", Json::array({"all"})}}, 3);
  // A second pass leaves nothing behind; the C library rounds a block now this way, now that.
  EXPECT_NEAR(static_cast<double>(device::tensor_memory().live_bytes), static_cast<double>(live), 4096);
  EXPECT_EQ(steps_without["loss_first"], steps_with["loss_first"]);
  EXPECT_EQ(steps_without["loss_last"], steps_with["loss_last"]);
  EXPECT_NE(steps_without["loss_first"], steps_without["loss_last"]);
  // What one operation needs for itself is the hardware's: with some instructions it is most of a step. So budgets lie between
  // what recompute of everything reaches here and what none takes.
  const double plain = steps_without["memory"]["step_peak_bytes"];
  const double least = steps_with["memory"]["step_peak_bytes"];
  EXPECT_LT(least, plain);
  for (const double share : {0.3, 0.7}) {
    const double budget = (least + share * (plain - least)) / plain;
    const Json memory = steps({{"memory.budget", std::to_string(100.0 * budget) + "%"}}, 2)["memory"];
    SCOPED_TRACE(memory.dump());
    const double real = memory["step_peak_bytes"];
    const double predicted = memory["predicted_bytes"];
    EXPECT_NEAR(memory["plain_bytes"].get<double>() / plain, 1.0, 0.02);
    EXPECT_NEAR(real / predicted, 1.0, 0.05);
    EXPECT_TRUE(memory["fits"].get<bool>());
    EXPECT_LE(predicted, memory["budget_bytes"].get<double>());
    EXPECT_FALSE(memory["recompute"].empty());
  }
}

TEST_P(SmallShape, ABudgetOutOfReachNamesThePeakAndTheMicroBatchesThatAreWithinIt) {
  const Json memory = steps({{"memory.budget", "30%"}}, 1)["memory"];  // it is known before the first step
  SCOPED_TRACE(memory.dump());
  EXPECT_FALSE(memory["fits"].get<bool>());
  EXPECT_GT(memory["predicted_bytes"].get<double>(), memory["budget_bytes"].get<double>());
  EXPECT_NE(memory.at("peak_in").get<std::string>().find("pass of "), std::string::npos);
  const std::string of = small_shapes()[GetParam()].recipe;
  // The others' batches have one sample, or most of what a step holds is there for a single row too (sessions, a frozen base).
  ASSERT_EQ(memory.contains("micro_batches_that_fit"), of == "language_model");
  if (of != "language_model") return;
  EXPECT_GE(memory.at("micro_batches_that_fit").get<std::int64_t>(), 2);
  EXPECT_LE(memory.at("bytes_that_fit").get<double>(), memory["budget_bytes"].get<double>());
}

INSTANTIATE_TEST_SUITE_P(Recipes, SmallShape, testing::Range<std::size_t>(0, small_shapes().size()),
                         [](const auto& param_info) { return std::string(small_shapes()[param_info.param].name); });

TEST(Decoder, RecomputeChangesNoGradientWithDropout) {
  using namespace recipes::language_model;
  const at::Tensor tokens = at::randint(0, 30, {4, 24}, at::kLong);
  for (const Attention attention : {Attention::causal, Attention::explicit_}) {
    std::vector<at::Tensor> plain;
    for (const char* word : {"none", "all", "transformer_blocks.1"}) {
      Transformer model({.vocab_size = 30, .positions = 24, .width = 32, .layers = 3, .heads = 2, .attention = attention}, 5);
      const memory::Recompute blocks({word});
      at::Tensor loss;
      {
        const RandomScope random({.seed = 1, .epoch = 2});
        const memory::BlockScope scope(blocks, at::kCPU);
        loss = model.forward(tokens).square().mean();
      }
      loss.backward();
      std::vector<at::Tensor> gradients;
      for (const at::Tensor& parameter : model.parameters()) gradients.push_back(parameter.grad());
      if (plain.empty()) plain = gradients;
      for (std::size_t i = 0; i < plain.size(); ++i)
        EXPECT_TRUE(at::equal(plain[i], gradients[i])) << word << ", parameter " << i;
    }
  }
}

}  // namespace
}  // namespace millrace
