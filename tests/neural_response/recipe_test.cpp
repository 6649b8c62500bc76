// The recipe itself on sessions in memory: its loss, its data, how it reads the original's flags, and the files of its runs.
#include "recipes/neural_response/recipe.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/poisson.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "millrace/base/fs.h"
#include "millrace/config/schema_of.h"
#include "millrace/optim/schedule.h"
#include "millrace/train/run/run.h"
#include "recipes/neural_response/detail/test_sessions.h"
#include "recipes/neural_response/entry.h"
#include "tests/support/refusal.h"

namespace millrace::recipes::neural_response {
namespace {

using namespace test;
using testing::HasSubstr;

// A session of each of these sizes, its rows one after the other in the epoch.
Batch batch_of(const std::vector<std::int64_t>& units, const std::vector<std::int64_t>& rows) {
  std::vector<Group> groups;
  std::int64_t position = 0;
  for (std::size_t i = 0; i < units.size(); ++i) {
    Group group{.name = "session" + std::to_string(i)};
    group.fields = {{"stim", at::rand({rows[i], 1, 25, 9, 9}) - 0.5},
                    {"behavior", at::randn({rows[i], 42})},
                    {"robs", at::poisson(at::rand({rows[i], units[i]}) * 3)},
                    {"dfs", at::ones({rows[i], units[i]})}};
    for (std::int64_t row = 0; row < rows[i]; ++row) group.positions.push_back(position++);
    groups.push_back(std::move(group));
  }
  return Batch(std::move(groups));
}

class RecipeTest : public SessionTest {
 protected:
  // A network of next to nothing, on the fixture's sessions; `values` stand above.
  config::Resolved resolved(const Json& values) const {
    const Entry row = entry();
    const config::Schema schema = schema_of(row);
    const auto words = aliases_of(row);
    config::Layers layers(schema, words);
    layers.add_values(row.defaults, "recipe");
    layers.add_values({{"data.dir", folder_.string()},
                       {"data.batch_size", 8},
                       {"recipe.adapter.grid_size", 9},
                       {"recipe.frontend.kernel_size", 3},
                       {"recipe.frontend.num_channels", 2},
                       {"recipe.convnet.stages", Json::parse(R"([{"channels": 4, "stride": 2}])")},
                       {"recipe.modulator.hidden_dim", 4},
                       {"recipe.modulator.beh_emb_dim", 2}},
                      "test");
    layers.add_values(values, "test");
    return layers.resolve();
  }

  std::unique_ptr<NeuralResponse> made(const Json& values = Json::object()) {
    const Json all = resolved(values).values;
    runs_.push_back(std::make_unique<RunConfig>(config::read<RunConfig>(all)));
    Context context;
    context.config = runs_.back().get();
    return std::make_unique<NeuralResponse>(config::read<Sections>(all), context, options());
  }

  // With the sessions open.
  std::unique_ptr<NeuralResponse> begun(const Json& values = Json::object()) {
    auto recipe = made(values);
    recipe->before_training();
    return recipe;
  }

  RunOutcome train(const Json& values) {
    Entry row = entry();
    row.make = [this](const Json& all, const Context& context) -> std::unique_ptr<Recipe> {
      return std::make_unique<NeuralResponse>(config::read<Sections>(all), context, options());
    };
    telemetry::Console console(telemetry::Console::Mode::quiet);
    RunRequest request{.entry = &row, .config = resolved(values), .console = &console};
    return run_training(request);
  }

  std::vector<std::unique_ptr<RunConfig>> runs_;  // of the recipes made so far
};

// ---- loss

// By hand: each session's mean, all counts alike or all sessions alike; the third session is hidden by its mask.
TEST_F(RecipeTest, BothMeansOfTheLossAndOfThePredictionErrorAreTheirFormulas) {
  const std::vector<std::int64_t> units = {5, 3, 2};
  for (const bool by_count : {true, false}) {
    SCOPED_TRACE(by_count);
    const auto recipe = made({{"recipe.units", units},
                              {"recipe.modulator.type", "pc"},
                              {"recipe.convnet.final_activation", "softplus"},
                              {"recipe.lambda_pred", 0.3},
                              {"recipe.bucket_mean", by_count ? "by_count" : "unweighted"}});
    torch::manual_seed(4);
    Batch batch = batch_of(units, {4, 2, 3});
    for (std::size_t i = 0; i < 2; ++i) {
      at::Tensor& mask = batch.groups()[i].fields.at("dfs");
      mask.copy_(at::rand(mask.sizes()) > (i == 0 ? 0.2 : 0.7));
      mask[0][0] = 1;
    }
    batch.groups()[2].fields.at("dfs").zero_();
    const Loss loss = *recipe->objectives().front().loss(batch, StepContext{});

    std::vector<Rows> rows;
    for (std::size_t i = 0; i < units.size(); ++i) {
      const Group& group = batch.groups()[i];
      rows.push_back({i, group.fields.at("stim"), group.fields.at("behavior"), group.positions});
    }
    const Predicted predicted = recipe->model().forward(rows);
    ASSERT_EQ(predicted.error_square_mean.size(), 3U);
    double poisson = 0, errors = 0, weights = 0;
    for (std::size_t i = 0; i < 2; ++i) {
      const Tensors& fields = batch.groups()[i].fields;
      const at::Tensor &v = predicted.rates[i], &y = fields.at("robs"), &mask = fields.at("dfs");
      double sum = 0, count = 0;
      for (std::int64_t row = 0; row < v.size(0); ++row) {
        for (std::int64_t u = 0; u < v.size(1); ++u) {
          if (mask[row][u].item<double>() == 0) continue;
          const double log_rate = v[row][u].item<double>();
          sum += std::exp(log_rate) - y[row][u].item<double>() * log_rate;
          ++count;
        }
      }
      const double weight = by_count ? count : 1;
      poisson += weight * sum / count;
      errors += weight * predicted.error_square_mean[i].item<double>();
      weights += weight;
    }
    const LossTerm &first = loss.term("poisson"), &second = loss.term("prediction_error");
    EXPECT_EQ(first.count.item<double>(), weights);
    EXPECT_EQ(second.count.item<double>(), weights);
    EXPECT_EQ(second.weight, 0.3);
    EXPECT_NEAR(first.sum.item<double>() / weights, poisson / weights, 1e-5 * std::abs(poisson / weights));
    EXPECT_NEAR(second.sum.item<double>() / weights, errors / weights, 1e-5 * errors / weights);
  }
}

// A session of so many counts that no float holds their loss, beside one as usual.
TEST_F(RecipeTest, ASessionLeftOutOfItsStepsIsCountedInTheirLogLines) {
  std::string text = dataset_text();
  text.replace(text.find("sessions: [a]"), 13, "sessions: [a, b]");
  write("dataset.yaml", text);
  write("sessions/b.yaml", "session: b\ncids: [1, 0]\n");
  for (const char* name : {"a/backimage.h5", "b/backimage.h5"}) write(name, "in memory");
  file("b/backimage.h5")->set("/robs", DType::f32, {kBins, 3}, std::vector<float>(kBins * 3, 1e38F));
  const RunOutcome run = train({{"run.dir", (folder_ / "run").string()},
                                {"precision.dtype", "fp32"},
                                {"device.layout", "contiguous"},
                                {"device.kernels", "ours"},
                                {"device.threads", 1},
                                {"data.workers", 0},
                                {"train.epochs", 0},
                                {"train.max_steps", 6},
                                {"train.validate_every", 6},
                                {"train.off", {"rehearsal"}},
                                {"lr_scheduler", "step"},
                                {"log.every", 3},
                                {"log.images", false},
                                {"log.tensorboard", false}});
  EXPECT_EQ(run.summary.at("steps"), 6);
  std::istringstream log(Fs::real().read_file(run.run_folder / "log.jsonl"));
  std::size_t lines = 0;
  for (std::string line; std::getline(log, line);) {
    const Json record = Json::parse(line, nullptr, false);
    if (!record.is_object() || record.value("kind", "") != "step") continue;
    EXPECT_EQ(record.at("train/nan_skip/a"), 0.0) << line;
    EXPECT_EQ(record.at("train/nan_skip/b"), 1.0) << line;
    EXPECT_TRUE(record.at("train/session_loss/a").is_number()) << line;
    EXPECT_TRUE(record.at("loss").is_number()) << line;
    EXPECT_EQ(record.at("skipped"), 0.0) << line;
    ++lines;
  }
  EXPECT_GE(lines, 2U);
  EXPECT_EQ(run.summary.at("metrics").at("nan_skip/b").at("last"), 1.0);
}

// ---- keys and flags

TEST_F(RecipeTest, SchedulesHaveTheFiguresOfTheOriginalWhereNoneAreGiven) {
  const auto optim_of = [this](const Json& values) { return begun(values)->objectives().front().optim; };
  const optim::OptimConfig step = optim_of({{"lr_scheduler", "step"}, {"recipe.steps_per_epoch", 7}, {"optim.accumulate", 2}});
  EXPECT_EQ(step.decay_every, 30 * 4) << "updates of 30 epochs";
  EXPECT_DOUBLE_EQ(optim::learning_rate_at(step, 119, 0), 1e-4);
  EXPECT_DOUBLE_EQ(optim::learning_rate_at(step, 120, 0), 5e-5);
  EXPECT_EQ(optim_of({{"lr_scheduler", "step"}, {"data.batch_size", 5}}).decay_every, 30 * 5) << "24 samples an epoch";
  EXPECT_EQ(optim_of({{"lr_scheduler", "step"}, {"optim.schedule_by", "epoch"}}).decay_every, 30);
  const auto warm_up_of = [&](const char* unit) {
    return optim_of(
               {{"lr_scheduler", "cosine_warmup"}, {"warmup_epochs", 3}, {"data.batch_size", 5}, {"optim.schedule_by", unit}})
        .warmup_steps;
  };
  EXPECT_EQ(warm_up_of("step"), 3 * 5);
  EXPECT_EQ(warm_up_of("epoch"), 3) << "such a schedule counts its steps in epochs";
  const optim::OptimConfig given = optim_of({{"lr_scheduler", "step"}, {"optim.decay_every", 9}, {"optim.decay_factor", 0.1}});
  EXPECT_EQ(given.decay_every, 9);
  EXPECT_EQ(given.decay_factor, 0.1);
  const optim::OptimConfig plateau = optim_of({{"lr_scheduler", "plateau"}, {"optim.accumulate", 1}});
  EXPECT_EQ(plateau.schedule, optim::ScheduleKind::plateau);
  EXPECT_EQ(plateau.plateau_patience, 3);
  EXPECT_EQ(plateau.decay_factor, 0.5);
}

TEST_F(RecipeTest, AValidationLooksAtItsPartOfEachSession) {
  const auto seen = [this](const char* key, double part) {
    const data::Pipeline pipeline = begun({{key, part}, {"data.batch_size", 8}})->data(Split::validation);
    return pipeline.datasets.front().source->size();
  };
  EXPECT_EQ(begun()->data(Split::validation).datasets.front().source->size(), 8) << "all, where nothing is said";
  EXPECT_EQ(seen("recipe.val_fraction", 0.5), 4);
  EXPECT_EQ(seen("val_fraction", 0.01), 1);
  const Entry row = entry();
  for (const auto& [name, values] : row.presets)
    EXPECT_EQ(values.value("recipe.val_fraction", 1.0), name.starts_with("full") ? 0.05 : 1.0) << name;
}

TEST_F(RecipeTest, SessionsWithoutBehaviourTrainAndPredict) {
  write("dataset.yaml",
        dataset_text() + "transforms:\n  stim: {source: stim, ops: [pixelnorm: {}, unsqueeze: 1], expose_as: stim}\n");
  const auto recipe = begun({{"recipe.modulator.type", "none"}});
  torch::manual_seed(3);
  Group group{.name = "a"};
  group.fields = {{"stim", at::rand({3, 1, 3, 4, 3}) - 0.5}, {"robs", at::ones({3, 2})}, {"dfs", at::ones({3, 2})}};
  group.positions = {0, 1, 2};
  std::vector<Group> groups;
  groups.push_back(std::move(group));
  const Batch batch(std::move(groups));
  const Loss loss = *recipe->objectives().front().loss(batch, StepContext{});
  EXPECT_TRUE(std::isfinite(loss.terms.front().sum.item<double>()));
  const at::Tensor rates = recipe->predict({{"stim", at::rand({2, 1, 3, 4, 3}) - 0.5}}).at("rates");
  EXPECT_EQ(rates.size(0), 2);
  EXPECT_EQ(rates.size(1), 2);
}

TEST_F(RecipeTest, FrozenVisionIsAdaptersFrontendAndConvnet) {
  const auto recipe = made({{"recipe.units", {3, 2}}, {"recipe.freeze_vision", true}});
  std::size_t frozen = 0;
  for (const auto& item : recipe->model().named_parameters()) {
    const std::string part = item.key().substr(0, item.key().find('.'));
    const bool is_vision = part == "adapters" || part == "frontend" || part == "convnet";
    EXPECT_EQ(item.value().requires_grad(), !is_vision) << item.key();
    frozen += is_vision ? 1 : 0;
  }
  EXPECT_EQ(frozen, 2U * 2 + 1 + 2) << "two of each adapter, the filters, the stage and its shortcut";
}

TEST_F(RecipeTest, FrozenVisionOfRandomWeightsIsSaid) {
  const auto notices = [this](const Json& values) {
    const Json all = resolved(values).values;
    const RunConfig run = config::read<RunConfig>(all);
    std::vector<std::string> said;
    Context context;
    context.config = &run;
    context.notice = [&](const std::string& text) { said.push_back(text); };
    NeuralResponse recipe(config::read<Sections>(all), context, options());
    (void)recipe.model();
    return said;
  };
  const auto random = testing::Contains(HasSubstr("are random: give recipe.pretrained, or remove recipe.freeze_vision"));
  EXPECT_THAT(notices({{"recipe.units", {3, 2}}, {"recipe.freeze_vision", true}}), random);
  EXPECT_THAT(notices({{"recipe.units", {3, 2}}}), testing::Not(random));
  EXPECT_THAT(notices({{"recipe.units", {3, 2}}, {"recipe.freeze_vision", true}, {"train.weights", "runs/earlier"}}),
              testing::Not(random));
}

// ---- snapshots, and what a trained model is used for

TEST_F(RecipeTest, GreyLevelsArePredictedFromAsTheRunLearnedFromThem) {
  const auto state_with = [this](const std::string& transforms) {
    write("dataset.yaml", dataset_text() + transforms);
    return begun()->state();
  };
  const auto rates = [this](const State& state, const at::Tensor& stim) {
    const auto recipe = made();
    recipe->load_state(state);
    const at::Tensor behavior = at::zeros({2, state.json.at("behavior_dim").get<std::int64_t>()});
    return recipe->predict({{"stim", stim}, {"behavior", behavior}}).at("rates");
  };
  const std::string eye = "  eye: {source: eyepos, expose_as: behavior}\n";
  const State pixels = state_with("");
  const State grey = state_with("transforms:\n  stim: {source: stim, ops: [unsqueeze: 1], expose_as: stim}\n" + eye);
  const State other = state_with("transforms:\n  stim: {source: stim, ops: [diff: {}, unsqueeze: 1], expose_as: stim}\n" + eye);
  torch::manual_seed(2);
  const at::Tensor levels = at::randint(0, 256, {2, 1, 3, 4, 3}, at::kByte);
  const at::Tensor floats = levels.to(at::kFloat);
  const at::Tensor normed = floats.sub(127).div(255);
  EXPECT_TRUE(at::equal(rates(pixels, levels), rates(pixels, normed)));
  EXPECT_FALSE(at::equal(rates(pixels, levels), rates(pixels, floats)));
  EXPECT_TRUE(at::equal(rates(grey, levels), rates(grey, floats)));
  EXPECT_THAT(refusal([&] { (void)rates(other, levels); }),
              HasSubstr("DataError  stim holds grey levels, but this run was trained on transformed frames"));
  EXPECT_EQ(rates(other, floats).size(1), 2);

  State old = pixels;
  old.json.erase("stimulus");
  EXPECT_TRUE(at::equal(rates(old, levels), rates(pixels, levels))) << "a snapshot of earlier versions";
  old.json["stimulus"] = "negatives";
  EXPECT_THAT(refusal([&] { (void)rates(old, levels); }), HasSubstr("SnapshotError"));
}

}  // namespace
}  // namespace millrace::recipes::neural_response
