// Tests of losses, penalties and VisionCore's model files: the parts between the network and the optimiser.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "millrace/base/error.h"
#include "millrace/config/schema_of.h"
#include "millrace/train/run/run.h"
#include "recipes/neural_response/checks.h"
#include "recipes/neural_response/entry.h"
#include "recipes/neural_response/entry_parts.h"
#include "recipes/neural_response/loss.h"
#include "recipes/neural_response/penalties.h"

namespace millrace::recipes::neural_response {
namespace {

using testing::HasSubstr;

// ---- pretrained weights

TEST(NeuralPretrained, AdaptersGoToTheSessionsOfTheirNames) {
  ModelConfig config;
  config.adapter.grid_size = 21;
  config.convnet.stages = {{.channels = 4, .stride = 2}};
  config.modulator.type = ModulatorType::none;
  const std::vector<SessionShape> others = {{"a", 1, {}}, {"b", 1, {}}}, ours = {{"b", 1, {}}, {"c", 1, {}}};
  DigitalTwin other(config, others, 1);
  const at::NoGradGuard no_grad;
  Tensors weights;
  for (auto& item : other.named_parameters()) {
    if (item.key().starts_with("adapters.0.")) item.value().fill_(10);
    if (item.key().starts_with("adapters.1.")) item.value().fill_(20);
    weights[item.key()] = item.value();
  }
  const auto scales = [&](const Json& saved) {
    DigitalTwin model(config, ours, 2);
    const double untouched = model.named_parameters()["adapters.1.log_sigma"].item<double>();
    (void)take_pretrained(model, weights, saved, "a file");
    return std::tuple(model.named_parameters()["adapters.0.log_sigma"].item<double>(),
                      model.named_parameters()["adapters.1.log_sigma"].item<double>(), untouched);
  };
  const Json saved = Json::parse(R"({"sessions": [{"name": "a"}, {"name": "b"}]})");
  const auto [of_b, of_c, untouched] = scales(saved);
  EXPECT_EQ(of_b, 20);
  EXPECT_EQ(of_c, untouched) << "the weights have no session c";
  EXPECT_EQ(std::get<0>(scales({})), 10) << "a plain file of weights names no sessions";
}

// ---- losses

TEST(NeuralLoss, PoissonFollowsTheFormulaInBothForms) {
  const at::Tensor v = at::randn({5, 3});
  const at::Tensor y = at::randn({5, 3}).abs();  // any numbers >= 0
  at::Tensor mask = at::ones({5, 3});
  mask[2][1] = 0.0;
  const MaskedSum logs = poisson_loss(v, y, mask, Activation::none);
  EXPECT_NEAR(logs.sum.item<double>(), ((v.exp() - y * v) * mask).sum().item<double>(), 1e-5);
  EXPECT_EQ(logs.count.item<double>(), 14);
  EXPECT_EQ(logs.dropped.item<double>(), 0);
  const at::Tensor r = v.exp();
  EXPECT_NEAR(poisson_loss(r, y, mask, Activation::softplus).sum.item<double>(), logs.sum.item<double>(), 1e-4);
}

TEST(NeuralLoss, WhatTheMaskHidesChangesNothingToTheBit) {
  const at::Tensor v = at::randn({5, 3});
  const at::Tensor y = at::randn({5, 3}).abs();
  at::Tensor mask = at::ones({5, 3});
  mask[2][1] = 0.0;
  at::Tensor other = y.clone();
  other[2][1] = 1e6;
  const auto gradient = [&](const at::Tensor& counts) {
    at::Tensor x = v.clone().requires_grad_();
    poisson_loss(x, counts, mask, Activation::none).sum.backward();
    return x.grad();
  };
  EXPECT_TRUE(at::equal(poisson_loss(v, y, mask, Activation::none).sum, poisson_loss(v, other, mask, Activation::none).sum));
  EXPECT_TRUE(at::equal(gradient(y), gradient(other)));
  mask.zero_();
  at::Tensor x = v.clone().requires_grad_();
  const MaskedSum none = poisson_loss(x, y, mask, Activation::none);
  none.sum.backward();
  EXPECT_EQ(none.count.item<double>(), 0);
  EXPECT_EQ(x.grad().abs().max().item<double>(), 0);
}

TEST(NeuralLoss, ASessionWhoseLossIsNotFiniteIsDroppedWithItsCountAndGradient) {
  at::Tensor v = at::zeros({2, 2});
  v[0][0] = 200.0;  // e^200 exceeds the range of float
  v.requires_grad_();
  const MaskedSum lost = poisson_loss(v, at::ones({2, 2}), at::ones({2, 2}), Activation::none);
  EXPECT_EQ(lost.sum.item<double>(), 0);
  EXPECT_EQ(lost.count.item<double>(), 0);
  EXPECT_EQ(lost.dropped.item<double>(), 1);
  lost.sum.backward();
  EXPECT_EQ(v.grad().abs().max().item<double>(), 0);
}

TEST(NeuralLoss, ZeroInflatedIsTheMixtureItSays) {
  const at::Tensor v = at::randn({40});
  const at::Tensor y = at::tensor({0.0F, 1.0F, 2.0F, 5.0F}).repeat({10});
  const at::Tensor pi = at::randn({40}).sigmoid();
  double expected = 0;
  for (std::int64_t i = 0; i < 40; ++i) {
    const double l = std::exp(v[i].item<double>()), p = pi[i].item<double>(), k = y[i].item<double>();
    const double likelihood = (k == 0 ? p : 0.0) + (1 - p) * std::exp(-l) * std::pow(l, k);  // times 1 / k!
    expected -= std::log(likelihood);
  }
  EXPECT_NEAR(zero_inflated_loss(v, pi, y, at::ones({40})).sum.item<double>(), expected, 1e-3);
  const at::Tensor never = at::zeros({40});
  EXPECT_NEAR(zero_inflated_loss(v, never, y, at::ones({40})).sum.item<double>(),
              poisson_loss(v, y, at::ones({40}), Activation::none).sum.item<double>(), 1e-4);
}

// ---- penalties

TEST(NeuralPenalties, SchedulesMoveWithTheEpoch) {
  const auto at = [](PenaltySchedule schedule, std::uint64_t epoch) {
    return lambda_at({.lambda = 1.5, .schedule = schedule, .start_epoch = 2, .end_epoch = 12, .start_lambda = 10}, epoch);
  };
  EXPECT_EQ(at(PenaltySchedule::constant, 0), 1.5);
  EXPECT_EQ(at(PenaltySchedule::warmup, 1), 0);
  EXPECT_EQ(at(PenaltySchedule::warmup, 2), 1.5);
  EXPECT_EQ(at(PenaltySchedule::linear_ramp, 1), 0);
  EXPECT_EQ(at(PenaltySchedule::linear_ramp, 7), 0.75);
  EXPECT_EQ(at(PenaltySchedule::linear_ramp, 40), 1.5);
  EXPECT_EQ(at(PenaltySchedule::linear_decay, 0), 10);
  EXPECT_EQ(at(PenaltySchedule::linear_decay, 7), 5.75);
  EXPECT_EQ(at(PenaltySchedule::linear_decay, 99), 1.5);
}

struct Readouts : torch::nn::Module {
  Readouts() {
    features = register_parameter("features", at::full({2, 3}, -0.5));
    std_ = register_parameter("std", at::tensor({-1.0F, 3.0F, 20.0F}));
  }
  at::Tensor features, std_;
};
struct Heads : torch::nn::Module {
  Heads() { readouts = register_module("readouts", std::make_shared<Readouts>()); }
  std::shared_ptr<Readouts> readouts;
};

TEST(NeuralPenalties, DefaultsClampDeviationsAndPullFeatures) {
  Heads heads;
  std::vector<std::string> notices;
  const Penalties penalties(RecipeConfig{}.regularization, heads, notices);
  ASSERT_EQ(notices.size(), 1U);
  EXPECT_THAT(notices[0], HasSubstr("\"exclude_means_from_wd\" matches no parameter: readouts/mean"));
  const auto terms = [&](std::uint64_t epoch) { return penalties.terms(epoch); };
  ASSERT_EQ(terms(0).size(), 1U);
  EXPECT_EQ(terms(0)[0].name, "readout_sparsity");
  EXPECT_EQ(terms(0)[0].sum.item<double>(), 0) << "from epoch 1 on";
  EXPECT_NEAR(terms(1)[0].sum.item<double>(), 6 * 0.5 * 1e-7, 1e-12);
  const at::NoGradGuard no_grad;
  penalties.apply(0);
  EXPECT_TRUE(at::equal(heads.readouts->std_, at::tensor({0.0F, 3.0F, 10.0F})));
  penalties.apply(50);
  EXPECT_TRUE(at::equal(heads.readouts->std_, at::tensor({0.0F, 1.5F, 1.5F})));
  EXPECT_TRUE(penalties.excludes_from_decay("readouts.0.mean"));
  EXPECT_FALSE(penalties.excludes_from_decay("readouts.0.std"));
}

TEST(NeuralPenalties, ANormMayFadeOutToZero) {
  const auto terms = [](double start_lambda, std::uint64_t epoch) {
    Heads heads;
    std::vector<std::string> notices;
    const Penalties penalties({{.name = "fading",
                                .type = PenaltyType::l1,
                                .lambda = 0,
                                .apply_to = {"readouts/features"},
                                .schedule = PenaltySchedule::linear_decay,
                                .end_epoch = 10,
                                .start_lambda = start_lambda}},
                              heads, notices);
    return penalties.terms(epoch);
  };
  ASSERT_EQ(terms(0.5, 0).size(), 1U);
  EXPECT_NEAR(terms(0.5, 0)[0].sum.item<double>(), 6 * 0.5 * 0.5, 1e-6);
  EXPECT_NEAR(terms(0.5, 5)[0].sum.item<double>(), 6 * 0.5 * 0.25, 1e-6);
  EXPECT_EQ(terms(0.5, 10)[0].sum.item<double>(), 0);
  EXPECT_TRUE(terms(0, 0).empty());
}

TEST(NeuralPenalties, ProximalRulesAreTheirFormulas) {
  const auto after = [](PenaltyType type) {
    Heads heads;
    std::vector<std::string> notices;
    const Penalties penalties({{.name = "rule", .type = type, .lambda = 2, .apply_to = {"std"}}}, heads, notices);
    const at::NoGradGuard no_grad;
    penalties.apply(0);
    return heads.readouts->std_.clone();
  };
  EXPECT_TRUE(at::equal(after(PenaltyType::proximal_l1), at::tensor({-0.0F, 1.0F, 18.0F})));
  EXPECT_TRUE(at::equal(after(PenaltyType::proximal_clamp), at::tensor({-1.0F, 2.0F, 2.0F})));
  EXPECT_TRUE(at::equal(after(PenaltyType::proximal_clamp_min), at::tensor({2.0F, 3.0F, 20.0F})));
}

// ---- VisionCore's model files

constexpr const char* kModel = R"(model_type: v1multi
sampling_rate: 240
initial_input_channels: 1
adapter: {type: adapter, params: {grid_size: 35, init_sigma: 1, transform: scale}}
frontend:
  type: learnable_temporal
  params: {kernel_size: 16, num_channels: 4, init_type: gaussian_derivatives, aa_signal: false, causal: true, bias: false}
convnet:
  type: resnet
  params:
    final_activation: softplus
    channels: [8, 64]
    dim: 3
    checkpointing: true
    block_configs:
      - conv_params: {type: standard, kernel_size: [3, 5, 5], padding: [1, 3, 3], stride: 2}
        norm_type: rms
        act_type: silu
        dropout: 0.0
        pool_params: null
      - conv_params: {type: standard, kernel_size: [3, 3, 3], padding: [2,2,2], dilation: 2, stride: 1}
        norm_type: rms
        act_type: silu
        dropout: 0.2
        pool_params: {type: aablur, stride: 2, r: 16, use_soft: true}
modulator: {type: pc, params: {behavior_dim: 42, feature_dim: 64, hidden_dim: 64, beh_emb_dim: 32, kernel_size: 3, concat_error: true}}
recurrent: {type: none, params: {}}
readout: {type: gaussian, params: {n_units: 8, bias: true, initial_std: 4.0, initial_mean_scale: 0.1}}
output_activation: none
lambda_pred: 0.25
regularization:
  - name: decay_readout_std
    type: proximal_clamp_positive
    lambda: 1.5
    apply_to: ["readouts/std"]
    schedule: {kind: linear_decay, start_epoch: 0, end_epoch: 50, start_lambda: 10.0}
)";

config::Resolved resolved(const std::string& text) {
  const std::filesystem::path file = std::filesystem::path(testing::TempDir()) / "model.yaml";
  write_atomically(Fs::real(), file, text);
  const Entry row = entry();
  const config::Schema schema = schema_of(row);
  config::Layers layers(schema);
  layers.add_values(row.defaults, "recipe");
  layers.add_file(file, row.named_configs.front().convert);
  return layers.resolve();
}

TEST(NeuralModelFile, TheOriginalsFileBecomesKeys) {
  const Json values = resolved(kModel).values;
  const auto recipe = config::read<Sections>(values).recipe;
  EXPECT_EQ(recipe.adapter.grid_size, 35);
  ASSERT_EQ(recipe.convnet.stages.size(), 2U);
  EXPECT_EQ(recipe.convnet.stages[0].stride, 2);
  EXPECT_EQ(recipe.convnet.stages[0].pool_stride, 0);
  EXPECT_EQ(recipe.convnet.stages[1].channels, 64);
  EXPECT_EQ(recipe.convnet.stages[1].kernel_size, (std::vector<std::int64_t>{3, 3, 3}));
  EXPECT_EQ(recipe.convnet.stages[1].squeeze, 16);
  EXPECT_EQ(recipe.convnet.stages[1].dropout, 0.2);
  EXPECT_EQ(recipe.convnet.final_activation, Activation::softplus);
  EXPECT_EQ(recipe.modulator.type, ModulatorType::pc);
  EXPECT_EQ(recipe.readout.initial_std, 4.0);
  EXPECT_EQ(recipe.lambda_pred, 0.25);
  ASSERT_EQ(recipe.regularization.size(), 1U);
  EXPECT_EQ(recipe.regularization[0].schedule, PenaltySchedule::linear_decay);
  EXPECT_EQ(recipe.regularization[0].start_lambda, 10.0);
  EXPECT_EQ(values["memory"]["recompute"], Json{"all"});
}

TEST(NeuralModelFile, AnEncoderOfBehaviourIsTheOneTheFileNames) {
  const auto file_with = [](const std::string& type, const std::string& encoder) {
    std::string text = kModel;
    const std::size_t begin = text.find("modulator:");
    return text.replace(begin, text.find('\n', begin) - begin,
                        "modulator: {type: " + type + ", params: {behavior_dim: 42, feature_dim: 64" + encoder + "}}");
  };
  const auto with_activation = [](const std::string& activation) {
    return ", encoder_params: {type: mlp, dims: [128, 96], activation: " + activation +
           ", bias: true, residual: false, dropout: 0.1, last_layer_activation: true}";
  };
  for (const char* type : {"film", "concat", "stn"}) {
    SCOPED_TRACE(type);
    for (const auto& [word, activation] :
         {std::pair("silu", EncoderActivation::silu), std::pair("gelu", EncoderActivation::gelu)}) {
      const Json values = resolved(file_with(type, with_activation(word))).values;
      EXPECT_EQ(values["recipe"]["modulator"]["type"].get<std::string>(), type);
      const EncoderConfig encoder = config::read<Sections>(values).recipe.modulator.encoder_params;
      EXPECT_EQ(encoder.activation, activation);
      EXPECT_EQ(encoder.dims, (std::vector<std::int64_t>{128, 96}));
      EXPECT_EQ(encoder.dropout, 0.1);
      EXPECT_FALSE(encoder.residual);
      EXPECT_TRUE(encoder.last_layer_activation);
    }
    const Json silent = resolved(file_with(type, "")).values;
    EXPECT_EQ(silent["recipe"]["modulator"]["encoder_params"]["activation"], "gelu")
        << "as where the original's files are silent";
    try {
      (void)resolved(file_with(type, with_activation("relu")));
      ADD_FAILURE() << "another activation than the file's would be computed";
    } catch (const ConfigError& error) {
      ASSERT_EQ(error.problems().size(), 1U);
      EXPECT_THAT(error.problems()[0].what, HasSubstr("activation relu is not supported"));
      EXPECT_THAT(error.problems()[0].next, HasSubstr("take gelu or silu"));
    }
  }
}

TEST(NeuralModelFile, RulesAreThoseOfTheFileOrThePublishedOnes) {
  const std::string whole = kModel;
  const std::string head = whole.substr(0, whole.find("regularization:"));
  const auto rules_of = [](const std::string& text) {
    return config::read<Sections>(resolved(text).values).recipe.regularization;
  };
  EXPECT_EQ(rules_of(head).size(), RecipeConfig{}.regularization.size()) << "a file that says nothing of rules";
  EXPECT_TRUE(rules_of(head + "regularization: []\n").empty());
  EXPECT_THROW((void)rules_of(head + "regularization: {type: l1}\n"), ConfigError);
}

TEST(NeuralModelFile, AnotherNetworkIsToldWithItsLine) {
  std::string text = kModel;
  text.replace(text.find("norm_type: rms"), 14, "norm_type: grn");
  text.replace(text.find("init_sigma"), 10, "init_signa");
  try {
    (void)resolved(text);
    FAIL();
  } catch (const ConfigError& error) {
    ASSERT_EQ(error.problems().size(), 2U);
    EXPECT_THAT(error.problems()[0].what, HasSubstr("unknown key \"init_signa\""));
    EXPECT_THAT(error.problems()[0].next, HasSubstr("did you mean init_sigma?"));
    EXPECT_THAT(error.problems()[0].where, HasSubstr("model.yaml:4"));
    EXPECT_THAT(error.problems()[1].what, HasSubstr("norm_type grn is not supported"));
  }
}

TEST(NeuralChecks, ValuesThatDoNotFitStandInOneList) {
  const auto problems = [](const Json& values) {
    const Entry row = entry();
    const config::Schema schema = schema_of(row);
    config::Layers layers(schema);
    layers.add_values(row.defaults, "recipe");
    layers.add_values(values, "test");
    std::string text;
    for (const Problem& problem : row.problems(layers.resolve().values)) text += problem.what + "; ";
    return text;
  };
  EXPECT_EQ(problems({}), "");
  EXPECT_THAT(problems({{"recipe.loss_type", "zip"}}),
              HasSubstr("loss_type zip needs a model that predicts the share of silent bins"));
  EXPECT_THAT(problems({{"recipe.modulator.kernel_size", 2}}), HasSubstr("an even number"));
  const Json blind = {{"recipe.adapter.type", "none"}, {"recipe.frontend.type", "none"}, {"recipe.convnet.type", "none"}};
  EXPECT_THAT(problems(blind), HasSubstr("a gaussian readout needs vision"));
  EXPECT_THAT(problems({{"recipe.units", {3}}, {"data.dir", "x"}}),
              HasSubstr("recipe.units is set, but the data define the units"));
}

}  // namespace
}  // namespace millrace::recipes::neural_response
