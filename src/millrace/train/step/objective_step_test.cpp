#include "millrace/train/step/objective_step.h"

#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include "millrace/base/error.h"
#include "millrace/memory/block.h"
#include "millrace/train/step/stepper_report.h"
#include "millrace/train/step/stepper_state.h"

namespace millrace {
namespace {

using testing::HasSubstr;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    at::Generator(at::globalContext().defaultGenerator(at::kCPU)).set_current_seed(3);
    body = register_module("body", torch::nn::Linear(3, 5));
    head = register_module("head", torch::nn::Linear(5, 1));
  }
  at::Tensor forward(const at::Tensor& x) {
    return head(memory::block("body", *body, [this, x] { return at::tanh(body(x)); }));
  }
  torch::nn::Linear body{nullptr}, head{nullptr};
};

enum class Terms { unlike, per_row, false_per_row };

// Two terms over the same rows: all rows count for `error`, but only masked rows for `masked`, so their counts differ.
class TwoTerms final : public Recipe {
 public:
  explicit TwoTerms(Terms terms = Terms::unlike) : terms_(terms) {}
  data::Pipeline data(Split) override { return {}; }
  NetImpl& model() override { return *net_; }
  std::vector<Objective> objectives() override {
    Objective objective;
    objective.optim.clip_norm = 100.0;
    objective.loss = [this](const Batch& batch, const StepContext&) -> std::optional<Loss> {
      const at::Tensor error = (net_->forward(batch["x"]) - batch["y"]).square().squeeze(1);
      const at::Tensor mask = batch["mask"];
      const auto rows = static_cast<double>(batch.rows());
      LossTerm all{.sum = error.sum(),
                   .count = at::full({}, rows),
                   .nominal_count = 4,
                   .name = "error",
                   .per_row = terms_ != Terms::unlike};
      LossTerm masked{.sum = (error.sqrt() * mask).sum(),
                      .count = mask.sum(),
                      .name = "masked",
                      .weight = 0.3,
                      .per_row = terms_ != Terms::unlike};
      if (terms_ == Terms::per_row) masked.count = at::full({}, 3 * rows);
      return Loss{.terms = {std::move(all), std::move(masked)}};
    };
    return {objective};
  }

 private:
  Terms terms_;
  std::shared_ptr<NetImpl> net_ = std::make_shared<NetImpl>();
};

Batch rows_of(std::int64_t first, std::int64_t count) {
  const at::Tensor number = at::arange(24, at::kFloat).narrow(0, first, count);
  Group group;
  group.fields["x"] = at::stack({number.sin(), number.cos(), (number * 0.3).sin()}, 1);
  group.fields["y"] = (number * 0.7).cos().unsqueeze(1);
  group.fields["mask"] =
      // True for most rows of the first batches, and for few rows of later ones.
      number.lt(7).logical_or(number.eq(20)).to(at::kFloat);
  for (std::int64_t i = 0; i < count; ++i) group.positions.push_back(first + i);
  std::vector<Group> groups;
  groups.push_back(std::move(group));
  return Batch(std::move(groups));
}

struct Outcome {
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> parameters;
  double loss = 0, error = 0, masked = 0;
};

// Makes a step of 24 rows in micro-batches of these sizes.
Outcome step_of(Terms terms, const std::vector<std::int64_t>& sizes, const memory::Recompute& recompute = {}) {
  TwoTerms recipe(terms);
  const Switches switches;
  telemetry::Timeline timeline;
  Stepper stepper(recipe, switches, timeline, {.recompute = recompute});
  recipe.model().train();
  metrics::Board board;
  stepper.begin_step(0);
  std::int64_t first = 0;
  for (const std::int64_t size : sizes) {
    board.add("loss", stepper.accumulate(rows_of(first, size), {.only = sizes.size() == 1}).losses[0]);
    first += size;
  }
  stepper.update();
  Outcome outcome;
  for (const at::Tensor& parameter : recipe.model().parameters()) outcome.parameters.push_back(parameter.detach().clone());
  outcome.gradients.push_back(at::full({}, reports_of(stepper)[0].gradient_norm));
  const auto means = board.means();
  outcome.loss = means.at("loss");
  outcome.error = means.at("loss/error");
  outcome.masked = means.at("loss/masked");
  return outcome;
}

void expect_near(const Outcome& a, const Outcome& b, double tolerance) {
  EXPECT_NEAR(a.loss, b.loss, tolerance);
  EXPECT_NEAR(a.error, b.error, tolerance);
  EXPECT_NEAR(a.masked, b.masked, tolerance);
  EXPECT_NEAR(a.gradients[0].item<double>(), b.gradients[0].item<double>(), tolerance);
  for (std::size_t i = 0; i < a.parameters.size(); ++i)
    EXPECT_LE((a.parameters[i] - b.parameters[i]).abs().max().item<double>(), tolerance) << i;
}

TEST(LossTerms, UnlikeCountsGiveTheSameStepHoweverTheBatchIsCut) {
  const Outcome whole = step_of(Terms::unlike, {24});
  EXPECT_NEAR(whole.loss, whole.error + 0.3 * whole.masked, 1e-6);
  for (const auto& sizes : std::vector<std::vector<std::int64_t>>{{12, 12}, {1, 23}, {8, 8, 8}, {7, 13, 4}, {5, 5, 5, 5, 4}})
    expect_near(step_of(Terms::unlike, sizes), whole, 1e-6);
  const Outcome recomputed = step_of(Terms::unlike, {8, 8, 8}, memory::Recompute({"all"}));
  expect_near(recomputed, step_of(Terms::unlike, {8, 8, 8}), 0.0);
}

TEST(LossTerms, PerRowTermsShareAPassAndGiveTheSame) {
  const Outcome whole = step_of(Terms::per_row, {24});
  for (const auto& sizes : std::vector<std::vector<std::int64_t>>{{12, 12}, {1, 23}, {7, 13, 4}})
    expect_near(step_of(Terms::per_row, sizes), whole, 1e-6);
}

TEST(LossTerms, ATermThatIsNotPerRowAlthoughItSaysSoIsFound) {
  try {
    (void)step_of(Terms::false_per_row, {12, 12});
    FAIL();
  } catch (const RecipeError& error) {
    EXPECT_THAT(error.what(), HasSubstr("a per_row term is not in proportion"));
  }
}

TEST(LossTerms, TheValueIsTheSumOfTheWeightedMeans) {
  const auto scalar = [](double value) { return at::full({}, value); };
  const Loss loss{.terms = {{.sum = scalar(6), .count = scalar(3), .name = "a"},
                            {.sum = scalar(8), .count = scalar(2), .name = "b", .weight = 0.5},
                            {.sum = scalar(0), .count = scalar(0), .name = "nothing here"}}};
  EXPECT_EQ(shown(loss).item<double>(), 2.0 + 0.5 * 4.0);
  EXPECT_EQ(shown(Loss{.terms = {{.sum = scalar(6), .count = scalar(3)}}}).item<double>(), 2.0);
}

// A base that requires no gradient, followed by a head that learns.
TEST(FrozenWeights, ReachNoOptimiser) {
  TwoTerms recipe;
  for (const at::Tensor& parameter : recipe.model().body->parameters()) parameter.set_requires_grad(false);
  const Switches switches;
  telemetry::Timeline timeline;
  Stepper stepper(recipe, switches, timeline, {});
  const auto& groups = stepper.objectives()[0].optimizer().groups();
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].parameters.size(), 2U);
  for (const auto& [name, tensor] : state_of(stepper).tensors)
    EXPECT_THAT(name, testing::Not(testing::StartsWith("body."))) << name;
  for (const at::Tensor& parameter : recipe.model().head->parameters()) parameter.set_requires_grad(false);
  try {
    const Stepper nothing(recipe, switches, timeline, {});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("objective \"loss\" has nothing to train"));
  }
}

TEST(Schedule, ByEpochKeepsItsRateThroughAnEpoch) {
  TwoTerms recipe;
  Objective objective = recipe.objectives()[0];
  objective.optim.learning_rate = 1.0;
  objective.optim.schedule = optim::ScheduleKind::step;
  objective.optim.schedule_by = optim::ScheduleUnit::epoch;
  objective.optim.decay_every = 2;
  ObjectiveStep step_of_objective(std::move(objective), recipe.model(), {.total_steps = 40, .steps_per_epoch = 10});
  std::vector<double> rates;
  for (const std::int64_t step : {0, 9, 10, 19, 20, 39}) {
    step_of_objective.begin_step(step);
    rates.push_back(step_of_objective.readings().learning_rate);
  }
  EXPECT_THAT(rates, testing::ElementsAre(1.0, 1.0, 1.0, 1.0, testing::DoubleEq(0.1), testing::DoubleEq(0.1)));
}

}  // namespace
}  // namespace millrace
