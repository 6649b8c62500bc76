// Our digital twin against the same one in Python torch 2.11: same weights, same batch, for each modulator.
#include <ATen/ops/exp.h>
#include <ATen/ops/log.h>
#include <ATen/ops/poisson.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "millrace/config/schema_of.h"
#include "millrace/optim/optimizer.h"
#include "millrace/snapshot/snapshot.h"
#include "millrace/train/recipe/config.h"
#include "recipes/neural_response/model.h"
#include "recipes/neural_response/recipe.h"
#include "tests/support/parity.h"
#include "tests/support/peer.h"

namespace millrace::recipes::neural_response {
namespace {

constexpr std::int64_t kBehavior = 10, kLags = 12;

struct Case {
  std::string name;
  RecipeConfig recipe;
  std::int64_t lags = kLags, side = 19, behavior = kBehavior;
  int steps = 20;
  bool plain = false;
};

RecipeConfig small(ModulatorType modulator) {
  RecipeConfig recipe;
  recipe.adapter.grid_size = 21;
  recipe.frontend.kernel_size = 8;
  recipe.convnet.stages[1].channels = recipe.convnet.stages[2].channels = 16;
  recipe.convnet.stages[1].squeeze = recipe.convnet.stages[2].squeeze = 4;
  for (StageConfig& stage : recipe.convnet.stages) stage.dropout = 0;
  recipe.modulator.type = modulator;
  recipe.modulator.hidden_dim = 16;
  recipe.modulator.beh_emb_dim = 8;
  recipe.modulator.encoder_params = {.dims = {12, kBehavior}};
  if (modulator == ModulatorType::pc) recipe.convnet.final_activation = Activation::softplus;
  recipe.lambda_pred = 0.25;
  return recipe;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const ModulatorType type : {ModulatorType::convgru, ModulatorType::pc, ModulatorType::film, ModulatorType::concat,
                                   ModulatorType::stn, ModulatorType::none})
    all.push_back({.name = config::write(type), .recipe = small(type)});
  Case alone{.name = "behaviour_alone", .recipe = small(ModulatorType::convgru)};
  alone.recipe.adapter.type = AdapterType::none;
  alone.recipe.frontend.type = FrontendType::none;
  alone.recipe.convnet.type = ConvnetType::none;
  alone.recipe.readout.type = ReadoutType::linear;
  alone.recipe.output_activation = Activation::softplus;
  all.push_back(alone);
  Case published{.name = "published", .lags = 25, .side = 51, .behavior = 42, .steps = 1};
  for (StageConfig& stage : published.recipe.convnet.stages) stage.dropout = 0;
  published.recipe.modulator.type = ModulatorType::pc;
  published.recipe.convnet.final_activation = Activation::softplus;
  all.push_back(published);
  for (std::size_t i : {0U, 1U, 7U}) {  // convgru, pc, published
    all.push_back(all[i]);
    all.back().name += "_plain";
    all.back().plain = true;
  }
  Case silu{.name = "film_silu", .recipe = small(ModulatorType::film)};
  silu.recipe.modulator.encoder_params.activation = EncoderActivation::silu;
  all.push_back(silu);
  return all;
}

class Parity : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const std::filesystem::path root = MILLRACE_SOURCE_DIR;
    if (!std::filesystem::exists(root / ".deps/venv/bin/python")) GTEST_SKIP() << "no Python environment in .deps/venv";
    const Case& c = GetParam();
    folder_ = std::filesystem::current_path() / ("neural_response_parity_" + c.name);
    std::filesystem::create_directories(folder_);
    const nn::Fused fused = c.plain ? nn::Fused::plain() : nn::Fused();
    const std::vector<SessionShape> sessions = {{"a", 12, {}}, {"b", 7, {}}};
    model_ = std::make_unique<DigitalTwin>(model_config_of(c.recipe, c.lags, c.behavior), sessions, 7, fused);
    model_->set_channels_last(!c.plain);
    torch::manual_seed(5);
    const at::NoGradGuard no_grad;
    for (const auto& named : model_->named_parameters()) {
      // None at a symmetric place, such as zero or a circle, where a gradient is rounding alone.
      named.value().add_(at::randn_like(named.value()), named.key().ends_with("std") ? 1.0 : 0.02);
    }
    Tensors data;
    for (std::size_t k = 0; k < sessions.size(); ++k) {
      const std::int64_t rows = k == 0 ? 3 : 2, units = sessions[k].units;
      const std::string suffix = "." + std::to_string(k);
      batch_.push_back({k, at::rand({rows, 1, c.lags, c.side, c.side}) - 0.5, at::randn({rows, c.behavior})});
      counts_.push_back(at::poisson(at::rand({rows, units})));
      valid_.push_back((at::rand({rows, units}) > 0.3).to(at::kFloat));
      data["stim" + suffix] = batch_[k].stim;
      data["behavior" + suffix] = batch_[k].behavior;
      data["counts" + suffix] = counts_[k];
      data["valid" + suffix] = valid_[k];
    }
    Tensors weights;
    for (const auto& named : model_->named_parameters()) weights[named.key()] = named.value().detach();
    for (const auto& named : model_->named_buffers()) weights[named.key()] = named.value();
    snapshot::write_tensors(Fs::real(), folder_ / "weights.safetensors", weights);
    snapshot::write_tensors(Fs::real(), folder_ / "batch.safetensors", data);
    Json config = config::write(c.recipe);
    config["behavior_dim"] = c.behavior;
    std::ofstream(folder_ / "config.json") << config.dump();
    std::string given = std::to_string(c.steps);
    std::vector<std::string> words;
    for (const char* file : {"config.json", "weights.safetensors", "batch.safetensors"}) {
      words.push_back((folder_ / file).string());
      given += Fs::real().read_file(folder_ / file);
    }
    words.push_back((folder_ / "out.safetensors").string());
    words.push_back(std::to_string(c.steps));
    static std::map<std::string, Tensors> answers;  // a plain network is given the same as the one with fused kernels
    Tensors& answer = answers[given];
    if (answer.empty()) {
      ASSERT_EQ(test::run_peer(root / "tests/neural_response/parity.py", words), 0) << folder_;
      answer = snapshot::read_tensors(folder_ / "out.safetensors");
    }
    theirs_ = answer;
  }

  struct Result {
    at::Tensor loss, sum, count;  // sum and count of each session
    Predicted predicted;
  };

  Result forward() {
    Result result;
    result.predicted = model_->forward(batch_);
    std::vector<at::Tensor> sums, counts;
    for (std::size_t k = 0; k < batch_.size(); ++k) {
      const at::Tensor& v = result.predicted.rates[k];
      const bool rates = GetParam().recipe.output_activation == Activation::softplus;
      const at::Tensor loss = rates ? v - counts_[k] * at::log(v + 1e-8) : at::exp(v) - counts_[k] * v;
      sums.push_back((loss * valid_[k]).sum());
      counts.push_back(valid_[k].sum());
    }
    result.sum = at::stack(sums);
    result.count = at::stack(counts);
    result.loss = result.sum.sum() / result.count.sum();
    if (!result.predicted.error_square_mean.empty())
      result.loss = result.loss + GetParam().recipe.lambda_pred * at::stack(result.predicted.error_square_mean).mean();
    return result;
  }

  Batch grouped() const {
    std::vector<Group> groups;
    std::int64_t position = 0;
    for (std::size_t k = 0; k < batch_.size(); ++k) {
      Group group{.name = model_->sessions()[k].name};
      group.fields = {{"stim", batch_[k].stim}, {"behavior", batch_[k].behavior}, {"robs", counts_[k]}, {"dfs", valid_[k]}};
      for (std::int64_t row = 0; row < batch_[k].stim.size(0); ++row) group.positions.push_back(position++);
      groups.push_back(std::move(group));
    }
    return Batch(std::move(groups));
  }

  // The recipe's own loss of these weights and this batch, term by term.
  void expect_loss_of_the_recipe(BucketMean mean) {
    const std::string word = config::write(mean);
    SCOPED_TRACE(word);
    RunConfig run;
    Context context;
    context.config = &run;
    Sections sections;
    sections.recipe = GetParam().recipe;
    sections.recipe.bucket_mean = mean;
    NeuralResponse recipe(sections, context);
    State state;
    state.json = {{"lags", GetParam().lags}, {"behavior_dim", GetParam().behavior}, {"bins_per_s", 120.0}};
    state.json["sessions"] = Json::array();
    for (const SessionShape& session : model_->sessions())
      state.json["sessions"].push_back({{"name", session.name}, {"units", session.units}, {"cids", Json::array()}});
    recipe.load_state(state);
    {
      const at::NoGradGuard no_grad;
      const auto ours = model_->named_parameters();
      for (auto& named : recipe.model().named_parameters()) named.value().copy_(ours[named.key()]);
    }
    const Loss loss = *recipe.objectives().front().loss(grouped(), StepContext{});
    const auto mean_of = [](const LossTerm& term) { return (term.sum / term.count).detach(); };
    EXPECT_LE(relative(mean_of(loss.terms.front()), theirs_.at("poisson." + word)), 1e-5);
    const bool predicts = GetParam().recipe.modulator.type == ModulatorType::pc;
    EXPECT_EQ(theirs_.contains("prediction_error." + word), predicts);
    if (!predicts) return;
    EXPECT_EQ(loss.term("prediction_error").weight, GetParam().recipe.lambda_pred);
    EXPECT_LE(relative(mean_of(loss.term("prediction_error")), theirs_.at("prediction_error." + word)), 1e-5);
  }

  void twenty_adamw_steps() {
    std::vector<optim::NamedParameter> parameters;
    for (const auto& named : model_->named_parameters()) parameters.push_back({named.key(), named.value()});
    optim::Optimizer optimizer({{.parameters = parameters}}, {.learning_rate = 1e-3, .clip_norm = 1.0}, !GetParam().plain);
    const at::Tensor one = at::scalar_tensor(1.0F);
    optimizer.zero_grad();
    for (int step = 0; step < GetParam().steps; ++step) {
      forward().loss.backward();
      optimizer.step(one, one);
      optimizer.zero_grad();
    }
    for (const auto& named : model_->named_parameters())
      EXPECT_LE(relative(named.value().detach(), theirs_.at("after." + named.key())), 1e-3) << named.key();
  }

  std::filesystem::path folder_;
  std::unique_ptr<DigitalTwin> model_;
  std::vector<Rows> batch_;
  std::vector<at::Tensor> counts_, valid_;
  Tensors theirs_;
};

TEST_P(Parity, RatesLossTermsEveryGradientAndTwentySteps) {
  const Result ours = forward();
  ours.loss.backward();
  EXPECT_EQ(ours.predicted.error_square_mean.size(), theirs_.contains("error.0") ? 2U : 0U);
  for (std::size_t k = 0; k < batch_.size(); ++k) {
    const std::string suffix = "." + std::to_string(k);
    const auto at_k = static_cast<std::int64_t>(k);
    EXPECT_LE(difference(ours.predicted.rates[k].detach(), theirs_.at("rates" + suffix)), 1e-5);
    EXPECT_LE(relative(ours.sum[at_k].detach(), theirs_.at("sum" + suffix)), 1e-5);
    EXPECT_EQ(difference(ours.count[at_k], theirs_.at("count" + suffix)), 0);
    if (!ours.predicted.error_square_mean.empty()) {
      EXPECT_LE(relative(ours.predicted.error_square_mean[k].detach(), theirs_.at("error" + suffix)), 1e-5);
    }
  }
  EXPECT_LE(relative(ours.loss.detach(), theirs_.at("loss")), 1e-5);
  std::size_t compared = 0;
  for (const auto& named : model_->named_parameters()) {
    ASSERT_TRUE(named.value().grad().defined()) << named.key();
    EXPECT_LE(relative(named.value().grad(), theirs_.at("grad." + named.key())), 1e-4) << named.key();
    ++compared;
  }
  std::size_t of_theirs = 0;
  for (const auto& [name, value] : theirs_) of_theirs += name.starts_with("grad.") ? 1 : 0;
  EXPECT_EQ(compared, of_theirs);
  for (const BucketMean mean : {BucketMean::by_count, BucketMean::unweighted}) expect_loss_of_the_recipe(mean);
  twenty_adamw_steps();
}

INSTANTIATE_TEST_SUITE_P(Modulators, Parity, ::testing::ValuesIn(cases()), [](const auto& c) { return c.param.name; });

}  // namespace
}  // namespace millrace::recipes::neural_response
