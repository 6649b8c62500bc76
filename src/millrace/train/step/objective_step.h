// One objective in a step: its parameters, optimiser, schedule, loss scale and average, and what its micro-batches gave so far.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/core/agreement.h"
#include "millrace/core/gradient_sums.h"
#include "millrace/core/saved_json.h"
#include "millrace/optim/average.h"
#include "millrace/optim/schedule.h"
#include "millrace/optim/spike.h"
#include "millrace/precision/loss_scale.h"
#include "millrace/train/recipe/recipe.h"
#include "millrace/train/step/micro_position.h"

namespace millrace {

struct ObjectiveStepOptions {
  at::Device device = at::kCPU;
  bool fused = true;                 // one kernel updates all parameters
  bool trains = true;                // false: nothing is kept for steps
  std::int64_t total_steps = 0;      // for schedules; 0 = open end
  std::int64_t steps_per_epoch = 0;  // for schedules that count epochs; 0 = not known
  std::int64_t global_batch = 0;     // for optim.lr_scaling; 0 = not known
  GradientSumsOptions gradients;     // bucket_bytes 0: they travel when all are there
  Agreement* shares = nullptr;       // ranks that keep a part of the optimiser's state each; null: each keeps all
};

// How an objective stands after a step. Tensors are scalars on its device.
struct ObjectiveReadings {
  at::Tensor bad;         // f32: 1 = the last step was not finite
  at::Tensor norm;        // f32: of the last gradient
  at::Tensor spikes;      // f64: so far
  at::Tensor misfit;      // f32: > 0 where a term is not per_row although it says so
  at::Tensor loss_scale;  // f32; undefined but in fp16
  double learning_rate = 0;
  bool took_part = true;    // in the last step that was finished
  GradientTraffic traffic;  // to the other ranks, so far
};

// What a loss's terms come to as logs show them: the sum of weight * mean over the terms that counted anything; an fp64 scalar on
// the loss's device, NaN where no term did.
[[nodiscard]] at::Tensor shown(const Loss& loss);
[[nodiscard]] Loss detached(Loss loss);  // sums, counts, reports and outputs

// A term's sum is divided by its own count over all micro-batches of a step and all ranks. Since a gradient that was added up can
// be divided only once, terms share a backward pass where one division serves all of them:
//   one term                  sum / nominal_count; the step's gradient is multiplied by nominal_count / count
//   one micro-batch in all    each sum over its own count, one pass
//   terms that are per_row    each sum over its count in the step's first micro-batch, one pass; one factor fits all
//   other terms               a pass and a gradient of their own each
class ObjectiveStep {
 public:
  // ConfigError when the objective has no parameter that requires a gradient; only those reach the optimiser.
  ObjectiveStep(Objective objective, const torch::nn::Module& model, const ObjectiveStepOptions& options);
  ~ObjectiveStep();
  ObjectiveStep(ObjectiveStep&&) noexcept;

  [[nodiscard]] const Objective& spec() const noexcept { return objective_; }
  [[nodiscard]] const std::vector<at::Tensor>& parameters() const noexcept { return parameters_; }
  [[nodiscard]] optim::Optimizer& optimizer() const noexcept { return *optimizer_; }

  // Sets the learning rate of step `step` (0-based) of the run; the steps in which the objective was absent do not count.
  void begin_step(std::int64_t step);
  // The step under way is given up: its micro-batches and gradients go. `ranks`: gradients that are on their way to the other
  // ranks are called back first, collective; null = nothing is on its way.
  void drop_step(Agreement* ranks = nullptr);
  // The backward pass of one micro-batch; returns the loss detached. `in_step`: the only one of all ranks; the last of this rank.
  Loss add(Loss loss, MicroPosition in_step);
  void sum_over(Agreement& agreement);            // gradients and counts of all ranks; collective
  void follow_root(Agreement& agreement);         // in the count of steps without a loss; collective
  [[nodiscard]] bool takes_part() const;          // some micro-batch of this step had a loss
  [[nodiscard]] bool host_says_skip() const;      // by reading the gradients; waits for the device
  void judge(std::optional<bool> bad_says_host);  // whether the step counts; without a value by the device alone
  // Scalar f32, 1 = a spike, in a step that `bad` says is finite; nullopt without optim.spike_zscore.
  [[nodiscard]] std::optional<at::Tensor> spike(const at::Tensor& bad);
  // The update, unless skip is 1 or not `applies`, and what the objective does after it; gradients go.
  void finish(const at::Tensor& skip, bool applies, const StepContext& context);
  [[nodiscard]] ObjectiveReadings readings() const;

  void observe_validation(double loss);  // for plateau schedules
  // Of step `step` (0-based) in a run of `total_steps`, whatever this run's length; without a plateau's factor.
  [[nodiscard]] double learning_rate_at(std::int64_t step, std::int64_t total_steps) const;
  void use_scale(bool fp16);                                                         // from here on, with a fresh one
  [[nodiscard]] optim::Average* average() const noexcept { return average_.get(); }  // null where optim.ema_decay is 0

  // "<parameter>.<word>" is the optimiser's, a name without a dot the objective's own. Collective where ranks keep a part each:
  // rank 0 has the parts of all then.
  [[nodiscard]] State state() const;
  void load_state(const State& state, const SavedJson& json, const Tensors& average);

 private:
  struct Term;
  struct OnAllRanks;
  struct Pass;
  struct Sums;
  Term& term_of(const LossTerm& term, std::size_t of);
  void backward(const std::string& key, const at::Tensor& mean, bool keeps_graph, bool last);
  void separate(const std::string& key);
  void merge_passes();
  [[nodiscard]] OnAllRanks known_of_all(Agreement& agreement) const;
  [[nodiscard]] std::vector<at::Tensor> travelled(bool some_began);
  void let_travel(Agreement& agreement, bool whole);
  [[nodiscard]] Pass undivided(const Term& first) const;
  void add_gradients(const Pass& pass, std::vector<at::Tensor>& all) const;
  [[nodiscard]] at::Tensor presence(const Pass& pass) const;
  std::vector<at::Tensor>::iterator take_gradients(Pass& pass, std::vector<at::Tensor>::iterator next) const;

  Objective objective_;
  optim::OptimConfig asked_;  // its settings before the run's length settled them
  ObjectiveStepOptions options_;
  std::vector<at::Tensor> parameters_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<optim::Plateau> plateau_;
  std::unique_ptr<precision::LossScale> scale_;  // fp16 only
  std::unique_ptr<optim::Average> average_;      // with optim.ema_decay
  std::optional<optim::SpikeRule> spike_rule_;
  std::unique_ptr<Sums> sums_;                   // of the step under way
  std::unique_ptr<GradientSums> gradient_sums_;  // from the first step on whose gradients can travel as they come
  GradientTraffic traffic_;
  bool keeps_home_ = false;  // they cannot: they are added up after the backward pass
  std::int64_t absent_steps_ = 0;
  bool took_part_ = true;
  double learning_rate_ = 0;
  at::Tensor bad_, norm_, spiked_, misfit_;
};

}  // namespace millrace
