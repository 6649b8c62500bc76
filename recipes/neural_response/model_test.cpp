#include "recipes/neural_response/model.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/silu.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <tuple>

#include "millrace/core/random.h"
#include "millrace/memory/block.h"

namespace millrace::recipes::neural_response {
namespace {

constexpr std::array kModulators = {ModulatorType::convgru, ModulatorType::pc,  ModulatorType::film,
                                    ModulatorType::concat,  ModulatorType::stn, ModulatorType::none};

ModelConfig published(ModulatorType type) {
  ModelConfig config;
  config.modulator.type = type;
  return config;
}

// The network of the preset smoke.
ModelConfig small(ModulatorType type) {
  ModelConfig config = published(type);
  config.lags = 12;
  config.adapter.grid_size = 21;
  config.frontend.kernel_size = 8;
  for (StageConfig* stage : {&config.convnet.stages[1], &config.convnet.stages[2]}) {
    stage->channels = 16;
    stage->squeeze = 4;
  }
  config.modulator.hidden_dim = 16;
  config.modulator.beh_emb_dim = 8;
  config.modulator.encoder_params.dims = {9, 7};
  return config;
}

const std::vector<SessionShape>& two_sessions() {
  static const std::vector<SessionShape> sessions = {{"a", 12, {}}, {"b", 12, {}}};
  return sessions;
}

Rows rows_of(std::size_t session, std::int64_t rows, const ModelConfig& config, std::span<const std::int64_t> positions = {}) {
  return {session, at::rand({rows, 1, config.lags, 23, 23}) - 0.5, at::randn({rows, config.behavior_dim}), positions};
}

// Rows 30 to 34 of an epoch, from two sessions in mixed order.
std::vector<Rows> two_groups(const ModelConfig& config) {
  static constexpr std::array<std::int64_t, 2> kFirst = {30, 33};
  static constexpr std::array<std::int64_t, 3> kSecond = {31, 32, 34};
  torch::manual_seed(3);
  return {rows_of(1, 2, config, kFirst), rows_of(0, 3, config, kSecond)};
}

// Multiplies each rate by a different weight, so that rates that are exchanged change the sum. The first weight is number
// `first`.
at::Tensor weighted(const at::Tensor& rates, std::int64_t first = 0) {
  return rates * (1 + first + at::arange(rates.numel()).view_as(rates)).cos();
}

at::Tensor sum_of(const Predicted& predicted) {
  at::Tensor sum = at::zeros({});
  for (const at::Tensor& rates : predicted.rates) sum = sum + weighted(rates).sum();
  for (const at::Tensor& error : predicted.error_square_mean) sum = sum + 3 * error;
  return sum;
}

using Gradients = std::map<std::string, at::Tensor>;

struct Pass {
  Predicted predicted;
  Gradients gradients;  // undefined for a parameter without a gradient
};

Gradients taken_gradients(DigitalTwin& model) {
  Gradients all;
  for (const auto& named : model.named_parameters()) {
    all[named.key()] = named.value().grad();
    named.value().mutable_grad() = at::Tensor();
  }
  return all;
}

Pass pass(DigitalTwin& model, std::span<const Rows> batch) {
  Pass out{model.forward(batch), {}};
  sum_of(out.predicted).backward();
  out.gradients = taken_gradients(model);
  return out;
}

void expect_near(const at::Tensor& a, const at::Tensor& b, double tolerance, const std::string& what) {
  ASSERT_EQ(a.defined(), b.defined()) << what;
  if (!a.defined()) return;
  ASSERT_EQ(a.sizes(), b.sizes()) << what;
  if (a.numel() == 0) return;
  EXPECT_LE((a - b).abs().max().item<double>(), tolerance * std::max(1.0, b.abs().max().item<double>())) << what;
}

void expect_equal(const Pass& a, const Pass& b, double tolerance = 1e-5) {
  ASSERT_EQ(a.predicted.rates.size(), b.predicted.rates.size());
  for (std::size_t k = 0; k < a.predicted.rates.size(); ++k)
    expect_near(a.predicted.rates[k], b.predicted.rates[k], tolerance, "rates " + std::to_string(k));
  for (const auto& [name, gradient] : a.gradients) expect_near(gradient, b.gradients.at(name), 10 * tolerance, name);
}

double count_of(const torch::nn::Module& module) {
  double count = 0;
  for (const at::Tensor& value : module.parameters()) count += static_cast<double>(value.numel());
  return count;
}

TEST(NeuralResponseModel, ParametersAreThoseOfThePage) {
  const std::array<std::int64_t, 2> units = {100, 20}, twelve = {12, 12};
  EXPECT_EQ(parameters_of(published(ModulatorType::convgru), units), 2'124'190);
  EXPECT_EQ(parameters_of(published(ModulatorType::pc), units), 2'123'038);
  EXPECT_EQ(parameters_of(published(ModulatorType::none), {}), 1'094'504);
  EXPECT_EQ(parameters_of(small(ModulatorType::convgru), twelve), 37'878);
  const DigitalTwin whole(published(ModulatorType::pc), {{"a", 100, {}}, {"b", 20, {}}});
  EXPECT_EQ(count_of(whole), 2'123'038);
  for (const ModulatorType type : kModulators) {
    ModelConfig config = small(type);
    EXPECT_EQ(count_of(DigitalTwin(config, two_sessions())), parameters_of(config, twelve));
    config.readout = {.type = ReadoutType::linear, .bias = false};
    config.adapter.type = AdapterType::none;
    config.convnet.stages[0].stride = 1;
    config.convnet.stages[0].channels = 4;
    EXPECT_EQ(count_of(DigitalTwin(config, two_sessions())), parameters_of(config, twelve));
  }
}

TEST(NeuralResponseModel, SizesOfEachPartAreThoseOfThePage) {
  const at::NoGradGuard no_grad;
  const ModelConfig config = published(ModulatorType::convgru);
  Adapter adapter(config.adapter, {});
  at::Tensor x = adapter.forward(at::rand({2, 1, 25, 45, 45}));
  EXPECT_EQ(x.sizes(), (std::vector<std::int64_t>{2, 1, 25, 51, 51}));
  x = Frontend(config.frontend, LagOrder::oldest_first, {}).forward(x);
  EXPECT_EQ(x.sizes(), (std::vector<std::int64_t>{2, 4, 10, 51, 51}));
  const std::vector<std::vector<std::int64_t>> after = {{2, 5, 8, 26, 26}, {2, 3, 256, 13, 13}, {2, 3, 128, 12, 12}};
  x = x.transpose(1, 2);
  for (std::size_t i = 0; i < 3; ++i) {
    Stage stage(config.convnet.stages[i], x.size(2), {});
    x = stage.forward(x, 0, true);
    EXPECT_EQ(x.sizes(), after[i]);
  }
  EXPECT_EQ(feature_frames(config), 3);
  EXPECT_EQ(feature_side(config, 51), 12);
  const at::Tensor behavior = at::rand({2, 42});
  EXPECT_EQ(make_modulator(config.modulator, 128, 42, {})->forward(x, behavior).features.sizes(),
            (std::vector<std::int64_t>{2, 128, 12, 12}));
  EXPECT_EQ(make_modulator({.type = ModulatorType::pc}, 128, 42, {})->forward(x, behavior).features.sizes(),
            (std::vector<std::int64_t>{2, 256, 12, 12}));
}

TEST(NeuralResponseModel, FiltersOverTimeAreDerivativesOfUnitNormTurnedRoundForNewestFirst) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> weights;
  for (const LagOrder order : {LagOrder::oldest_first, LagOrder::newest_first}) {
    ModelConfig config = small(ModulatorType::none);
    config.lag_order = order;
    weights.push_back(DigitalTwin(config, two_sessions(), 5).named_parameters()["frontend.temporal_conv.weight"].squeeze(1));
  }
  expect_near(weights[0].square().sum({1}), at::ones({4}), 1e-6, "norms");
  EXPECT_TRUE(at::equal(weights[0].flip(1), weights[1]));
  expect_near(weights[0][0], weights[0][0].flip(0), 1e-6, "a Gaussian is even");
  expect_near(weights[0][1], -weights[0][1].flip(0), 1e-6, "its derivative is odd");
  EXPECT_GT(weights[0][1][0].item<float>(), 0);  // the filter is -t, which is positive at the oldest lag
}

TEST(NeuralResponseModel, ReadoutsBeginAtMeanCounts) {
  DigitalTwin model(small(ModulatorType::film), {{"a", 2, {0.5F, 0.0F}}, {"b", 1, {}}});
  const auto parameters = model.named_parameters();
  expect_near(parameters["readouts.0.bias"], at::tensor({0.5F, 1e-3F}).log(), 1e-6, "logarithms, of 1e-3 at least");
  expect_near(parameters["readouts.1.bias"], at::zeros({1}), 0, "no counts");
  EXPECT_TRUE((parameters["readouts.0.std"] == 5.0).all().item<bool>());
  expect_near(model.masks(0, 5, 7).sum({1, 2}), at::ones({2}), 1e-6, "masks have sum 1");
}

TEST(NeuralResponseModel, AnEncodersActivationIsGeluOrSilu) {
  const at::NoGradGuard no_grad;
  const at::Tensor frame = at::rand({2, 1, 3, 4, 4}), behavior = at::randn({2, 5});
  for (const EncoderActivation activation : {EncoderActivation::gelu, EncoderActivation::silu}) {
    ModulatorConfig config{.type = ModulatorType::concat};
    config.encoder_params.dims = {6, 7};
    config.encoder_params.activation = activation;
    const auto modulator = make_modulator(config, 3, 5, {});
    auto parameters = modulator->named_parameters();
    for (auto& item : parameters) item.value().normal_();
    const at::Tensor hidden =
        at::linear(behavior, parameters["encoder.mlp.0.linear.weight"], parameters["encoder.mlp.0.linear.bias"]);
    const at::Tensor active = activation == EncoderActivation::silu ? at::silu(hidden) : at::gelu(hidden);
    const at::Tensor expected = at::linear(active, parameters["encoder.mlp.1.weight"], parameters["encoder.mlp.1.bias"]);
    const at::Tensor features = modulator->forward(frame, behavior).features;
    expect_near(features.narrow(1, 3, 7).select(3, 0).select(2, 0), expected, 1e-5, "encoded");
  }
}

TEST(NeuralResponseModel, WeightsAreAFunctionOfTheSeed) {
  const auto weights = [](std::uint64_t seed) {
    Gradients all;
    const DigitalTwin model(small(ModulatorType::convgru), two_sessions(), seed);
    for (const auto& named : model.named_parameters()) all[named.key()] = named.value().detach();
    return all;
  };
  const auto one = weights(1), again = weights(1), other = weights(2);
  for (const auto& [name, value] : one) EXPECT_TRUE(at::equal(value, again.at(name))) << name;
  EXPECT_FALSE(at::equal(one.at("readouts.1.mean"), other.at("readouts.1.mean")));
  const at::Tensor h = one.at("modulator.gru.cell.conv_h.weight").flatten(1);
  expect_near(at::matmul(h, h.t()), at::eye(48), 1e-5, "orthogonal");
}

TEST(NeuralResponseModel, CoreAndHeadsShareOutAllParameters) {
  const DigitalTwin model(small(ModulatorType::pc), two_sessions());
  std::set<std::string> names;
  for (const auto& name : model.core_parameters()) EXPECT_TRUE(names.insert(name).second);
  for (const auto& name : model.head_parameters()) EXPECT_TRUE(names.insert(name).second);
  EXPECT_EQ(names.size(), model.parameters().size());
  for (const char* name :
       {"adapters.1.log_scale", "adapters.0.log_sigma", "frontend.temporal_conv.weight",
        "convnet.layers.1.main_block.components.conv.conv.weight", "convnet.layers.2.main_block.components.pool.se.3.bias",
        "convnet.layers.1.shortcut.0.weight", "modulator.beh_emb.bias", "modulator.predictor.cell.conv_x.weight",
        "readouts.0.features.weight", "readouts.1.mean", "readouts.1.std", "readouts.1.theta", "readouts.1.bias"})
    EXPECT_TRUE(names.contains(name)) << name;
  EXPECT_FALSE(names.contains("convnet.layers.2.shortcut.0.weight"));  // it has 16 channels before and after, so the shortcut is
                                                                       // the identity
}

// The largest |a - b| divided by the largest |b|.
double apart_by(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item<double>();
}

// The largest gradient; some gradients are zero except for rounding (those of angles, if a unit's spread is the same in all
// directions).
double largest_of(const Gradients& gradients) {
  double largest = 0;
  for (const auto& [name, gradient] : gradients)
    if (gradient.defined()) largest = std::max(largest, gradient.abs().max().item<double>());
  return largest;
}

// The rates of a grouped batch, and the gradients of their weighted sum.
Pass grouped(DigitalTwin& model, std::span<const Rows> batch) {
  const RandomScope scope(RandomScope::Position{.seed = 9, .epoch = 2});
  return pass(model, batch);
}

// Like grouped(), but with a forward and a backward pass for each row.
Pass row_by_row(DigitalTwin& model, std::span<const Rows> batch) {
  Pass out;
  for (const Rows& group : batch) {
    std::vector<at::Tensor> rates;
    for (std::int64_t row = 0; row < group.stim.size(0); ++row) {
      const RandomScope scope(RandomScope::Position{.seed = 9, .epoch = 2});
      const Rows one{group.session, group.stim.narrow(0, row, 1), group.behavior.narrow(0, row, 1),
                     group.positions.subspan(static_cast<std::size_t>(row), 1)};
      const Predicted predicted = model.forward({&one, 1});
      rates.push_back(predicted.rates[0]);
      at::Tensor sum = weighted(rates.back(), row * rates.back().numel()).sum();
      for (const at::Tensor& error : predicted.error_square_mean)
        sum = sum + 3.0 / static_cast<double>(group.stim.size(0)) * error;
      sum.backward();
    }
    out.predicted.rates.push_back(at::cat(rates));
  }
  out.gradients = taken_gradients(model);
  return out;
}

// In fp64 both must be equal. In fp32 the order of sums differs, because libraries choose it by the number of rows.
TEST(NeuralResponseModel, GroupsEqualTheirRowsOneByOne) {
  for (const ModulatorType type : kModulators) {
    for (const bool training : {false, true}) {
      DigitalTwin model(small(type), two_sessions(), 4);
      model.train(training);
      std::vector<Rows> batch = two_groups(model.config());
      for (const auto& [dtype, of_rates, of_gradients] :
           {std::tuple(at::kFloat, 1e-6, 1e-5), std::tuple(at::kDouble, 1e-13, 1e-12)}) {
        SCOPED_TRACE(testing::Message() << static_cast<int>(type) << (training ? " training " : " evaluation ") << dtype);
        model.to(dtype);
        for (Rows& rows : batch) rows = {rows.session, rows.stim.to(dtype), rows.behavior.to(dtype), rows.positions};
        const Pass together = grouped(model, batch), apart = row_by_row(model, batch);
        EXPECT_EQ(together.predicted.forwards, 1);
        for (std::size_t k = 0; k < batch.size(); ++k)
          EXPECT_LT(apart_by(apart.predicted.rates[k], together.predicted.rates[k]), of_rates);
        const double largest = largest_of(together.gradients);
        EXPECT_GT(largest, 0);
        for (const auto& [name, gradient] : together.gradients) {
          ASSERT_EQ(gradient.defined(), apart.gradients.at(name).defined()) << name;
          if (!gradient.defined()) continue;
          EXPECT_LT((apart.gradients.at(name) - gradient).abs().max().item<double>(), of_gradients * largest) << name;
        }
      }
    }
  }
}

// Shows that each row has its own dropout, which differs from that of other rows.
TEST(NeuralResponseModel, ARowDropsItsOwnWhateverElseIsInItsBatch) {
  const ModelConfig config = small(ModulatorType::convgru);
  DigitalTwin model(config, two_sessions(), 4);
  const std::vector<Rows> batch = two_groups(config);
  const auto rates_at = [&](std::int64_t position) {
    const std::array positions = {position};
    const Rows one{0, batch[1].stim.narrow(0, 0, 1), batch[1].behavior.narrow(0, 0, 1), positions};
    const RandomScope scope(RandomScope::Position{.seed = 9, .epoch = 2});
    return model.forward({&one, 1}).rates[0];
  };
  EXPECT_TRUE(at::equal(rates_at(31), rates_at(31)));
  EXPECT_GT(apart_by(rates_at(32), rates_at(31)), 1e-3);
}

// A pass of the model with `fused`, in training. Weights, rows and random numbers are the same in each call.
Pass pass_with(const ModelConfig& config, const nn::Fused& fused, bool channels_last = false) {
  DigitalTwin model(config, two_sessions(), 6, fused);
  model.set_channels_last(channels_last);
  const std::vector<Rows> batch = two_groups(config);
  const RandomScope scope(RandomScope::Position{.seed = 9, .epoch = 2});
  return pass(model, batch);
}

TEST(NeuralResponseModel, OneCoreForAllSessionsEqualsACoreForEach) {
  for (const ModulatorType type : kModulators) {
    const Pass joined = pass_with(small(type), {});  // with dropout, which must drop the same elements
    const Pass apart = pass_with(small(type), nn::Fused::without({kJoinedCore}));
    EXPECT_EQ(joined.predicted.forwards, 1);
    EXPECT_EQ(apart.predicted.forwards, 2);
    expect_equal(joined, apart);
  }
}

TEST(NeuralResponseModel, WhatNoOutputDependsOnChangesNothing) {
  for (const ModulatorType type : kModulators) {
    expect_equal(pass_with(small(type), {}), pass_with(small(type), nn::Fused::without({kNeededOnly})));
  }
  ModelConfig shapes = small(ModulatorType::convgru);  // other combinations of strides, dilations and frames
  shapes.lags = 15;
  shapes.convnet.stages[0].dilation = 2;
  shapes.convnet.stages[1].stride = 2;
  shapes.convnet.stages[1].pool_stride = 1;
  shapes.convnet.stages[2].pool_stride = 0;
  for (const std::int64_t lags : {8, 9, 10, 15, 20}) {
    shapes.lags = lags;
    expect_equal(pass_with(shapes, {}), pass_with(shapes, nn::Fused::without({kNeededOnly})));
  }
}

TEST(NeuralResponseModel, LayoutOfTheCoreChangesNothing) {
  for (const ModulatorType type : kModulators) {
    const ModelConfig config = small(type);
    expect_equal(pass_with(config, {}, true), pass_with(config, {}, false));
  }
}

TEST(NeuralResponseModel, ASessionWithoutRowsTakesNoPart) {
  for (const bool joined : {true, false}) {
    const ModelConfig config = small(ModulatorType::pc);
    DigitalTwin model(config, two_sessions(), 6, joined ? nn::Fused() : nn::Fused::without({kJoinedCore}));
    torch::manual_seed(3);
    const std::vector<Rows> batch = {rows_of(1, 0, config), rows_of(0, 3, config)};
    const Pass out = pass(model, batch);
    EXPECT_EQ(out.predicted.forwards, 1);
    EXPECT_EQ(out.predicted.rates[0].sizes(), (std::vector<std::int64_t>{0, 12}));
    EXPECT_EQ(out.predicted.error_square_mean[0].item<float>(), 0);
    for (const auto& [name, gradient] : out.gradients) {
      const bool absent = name.starts_with("adapters.1") || name.starts_with("readouts.1");
      ASSERT_EQ(gradient.defined(), !absent) << name;
      EXPECT_TRUE(absent || gradient.isfinite().all().item<bool>()) << name;
    }
    const std::vector<Rows> nobody = {rows_of(0, 0, config)};
    EXPECT_EQ(model.forward(nobody).forwards, 0);
  }
}

TEST(NeuralResponseModel, PredictionErrorIsAMeanForEachSession) {
  const ModelConfig config = small(ModulatorType::pc);
  DigitalTwin model(config, two_sessions(), 6);
  const std::vector<Rows> batch = two_groups(config);
  const Predicted out = model.forward(batch);
  ASSERT_EQ(out.error_square_mean.size(), 2U);
  EXPECT_NE(out.error_square_mean[0].item<float>(), out.error_square_mean[1].item<float>());
  EXPECT_GT(out.error_square_mean[0].item<float>(), 0);
  model.eval();
  EXPECT_TRUE(model.forward(batch).error_square_mean.empty());
  EXPECT_TRUE(DigitalTwin(small(ModulatorType::convgru), two_sessions()).forward(batch).error_square_mean.empty());
}

TEST(NeuralResponseModel, RecomputeChangesNothing) {
  for (const ModulatorType type : {ModulatorType::pc, ModulatorType::convgru, ModulatorType::film}) {
    std::vector<Pass> passes;
    std::vector<std::string> seen;
    for (const char* blocks : {"none", "all"}) {
      const memory::Recompute recompute({blocks});
      DigitalTwin model(small(type), two_sessions(), 6);
      const std::vector<Rows> batch = two_groups(model.config());
      const RandomScope random(RandomScope::Position{.seed = 9});
      Pass out;
      {
        const memory::BlockScope scope(recompute, at::kCPU, nullptr, &seen);
        out.predicted = model.forward(batch);
      }
      sum_of(out.predicted).backward();
      for (const auto& named : model.named_parameters()) out.gradients[named.key()] = named.value().grad();
      passes.push_back(std::move(out));
    }
    EXPECT_EQ(seen[0], "convnet.layers.0");
    EXPECT_EQ(seen[3], "modulator");
    for (const auto& [name, gradient] : passes[0].gradients)
      EXPECT_TRUE(at::equal(gradient, passes[1].gradients.at(name))) << name;
  }
}

TEST(NeuralResponseModel, BehaviourAloneSpeaksWithoutVision) {
  ModelConfig config = small(ModulatorType::convgru);
  config.adapter.type = AdapterType::none;
  config.frontend.type = FrontendType::none;
  config.convnet.type = ConvnetType::none;
  config.output_activation = Activation::softplus;
  for (const ReadoutType readout : {ReadoutType::linear, ReadoutType::gaussian}) {
    config.readout.type = readout;
    DigitalTwin model(config, two_sessions());
    std::vector<Rows> batch = two_groups(config);
    const at::Tensor before = model.forward(batch).rates[0];
    EXPECT_GT(before.min().item<float>(), 0);
    batch[0].stim = at::rand_like(batch[0].stim);
    EXPECT_TRUE(at::equal(before, model.forward(batch).rates[0]));
    batch[0].behavior = at::rand_like(batch[0].behavior);
    EXPECT_FALSE(at::equal(before, model.forward(batch).rates[0]));
  }
}

TEST(NeuralResponseModel, PartsThatDoNotFitAreRefused) {
  const auto first = [](const ModelConfig& config) {
    const auto problems = shape_problems(config);
    return problems.empty() ? std::string() : problems[0].what;
  };
  for (const ModulatorType type : kModulators) {
    EXPECT_EQ(first(published(type)), "");
    EXPECT_EQ(first(small(type)), "");
  }
  ModelConfig config = published(ModulatorType::pc);
  config.lags = 12;
  EXPECT_EQ(first(config), "the frontend's filters have 16 lags, but a sample has only 12");
  config.lags = 17;
  EXPECT_EQ(first(config), "modulator pc predicts the last frame from the frames before it, but the features have only 1 frame");
  config = published(ModulatorType::pc);
  config.modulator.hidden_dim = 64;
  EXPECT_EQ(first(config), "modulator pc needs a hidden_dim of 128, the number of feature channels, but it is 64");
  EXPECT_THROW(DigitalTwin(config, two_sessions()), ConfigError);
  config = published(ModulatorType::convgru);
  config.adapter.grid_size = 3;
  config.convnet.stages[2].padding = {0, 0, 0};
  EXPECT_EQ(first(config), "the stages leave nothing of a grid of 3 pixels a side");
  config = published(ModulatorType::film);
  config.behavior_dim = 0;
  EXPECT_EQ(first(config), "a modulator needs behaviour, but the data have no behaviour");
}

}  // namespace
}  // namespace millrace::recipes::neural_response
