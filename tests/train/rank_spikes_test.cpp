// A spike that one rank's rows make is a spike for all ranks: a step that only some of them skip would part their weights.
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "millrace/optim/spike.h"
#include "millrace/train/step/stepper.h"
#include "seats.h"

namespace millrace {
namespace {

// A loss that shows a number of the batch in place of its own.
class Reporting final : public Recipe {
 public:
  Reporting() {
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : layer_->parameters()) parameter.fill_(0.5);
  }
  data::Pipeline data(Split) override { return {}; }
  torch::nn::Module& model() override { return *layer_; }
  std::vector<Objective> objectives() override {
    Objective objective;
    objective.optim.spike_zscore = 6.0;
    objective.loss = [this](const Batch& batch, const StepContext&) -> std::optional<Loss> {
      const at::Tensor rows = at::full({}, static_cast<double>(batch.rows()));
      const at::Tensor sum = (layer_->forward(batch["x"]) - batch["y"]).square().sum();
      return Loss{.terms = {{.sum = sum, .count = rows, .report = LossTerm::Report{batch["shown"].sum(), rows, false}}}};
    };
    return {objective};
  }

 private:
  torch::nn::Linear layer_{1, 1};
};

struct SpikedRun {
  std::vector<at::Tensor> parameters;
  double spikes = 0;
};

// Steps until the rule judges. In the last one the number that rank 0 shows jumps.
SpikedRun run_with_jump(Agreement& agreement, double last) {
  Reporting recipe;
  const Switches switches;
  telemetry::Timeline timeline;
  Stepper stepper(recipe, switches, timeline, {.agreement = &agreement});
  for (std::int64_t step = 0; step <= optim::SpikeRule::kWindow; ++step) {
    const bool jumps = agreement.ranks().rank == 0 && step == optim::SpikeRule::kWindow;
    stepper.begin_step(step);
    (void)stepper.accumulate(
        Batch(Tensors{{"x", at::ones({2, 1})}, {"y", at::full({2, 1}, 2.0)}, {"shown", at::full({2}, jumps ? last : 1.0)}}));
    stepper.update();
  }
  SpikedRun ended{.parameters = {}, .spikes = stepper.objectives()[0].readings().spikes.item<double>()};
  for (const at::Tensor& parameter : recipe.model().parameters()) ended.parameters.push_back(parameter.detach().clone());
  return ended;
}

TEST(RankSpikes, AllRanksJudgeByTheNumbersOfAll) {
  for (const double last : {1.0, 100.0}) {
    const std::vector<SpikedRun> ranks =
        toys::on_ranks(2, [last](Agreement& agreement) { return run_with_jump(agreement, last); });
    EXPECT_EQ(ranks[0].spikes, last > 1.0 ? 1.0 : 0.0);
    EXPECT_EQ(ranks[1].spikes, ranks[0].spikes) << "the mean that rank 0 shows is not that of the run";
    ASSERT_EQ(ranks[0].parameters.size(), ranks[1].parameters.size());
    for (std::size_t i = 0; i < ranks[0].parameters.size(); ++i)
      EXPECT_TRUE(at::equal(ranks[0].parameters[i], ranks[1].parameters[i])) << last << ", parameter " << i;
  }
}

}  // namespace
}  // namespace millrace
