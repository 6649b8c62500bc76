// One objective in a step: its parameters, optimiser, schedule, loss scale and average, and the sums of its micro-batches so far.
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

// The loss as logs show it: the sum of weight * mean over the terms whose count is not 0; an fp64 scalar on the loss's device,
// NaN if all counts are 0.
[[nodiscard]] at::Tensor shown(const Loss& loss);
[[nodiscard]] Loss detached(Loss loss);  // detaches sums, counts, reports and outputs

// Each term's sum must be divided by the term's count over all micro-batches of a step and all ranks. Gradients that are
// accumulated together can be divided only by one number, so terms share a backward pass if the same number serves all of them:
//   one term                  sum / nominal_count; the step's gradient is multiplied by nominal_count / count
//   one micro-batch in all    each sum over its own count, one pass
//   terms that are per_row    each sum over its count in the step's first micro-batch, one pass; one factor fits all
//   other terms               a separate pass and gradient for each
class ObjectiveStep {
 public:
  struct Options {
    at::Device device = at::kCPU;
    bool fused = true;                 // one kernel updates all parameters
    bool trains = true;                // false, for inference: the objective has no averaged weights and no loss scale
    std::int64_t total_steps = 0;      // used by schedules; 0 = the run has no fixed end
    std::int64_t steps_per_epoch = 0;  // used by schedules that count epochs; 0 = not known
    std::int64_t global_batch = 0;     // used by optim.lr_scaling; 0 = not known
    GradientSumsOptions gradients;     // bucket_bytes 0: gradients are sent when all of them are computed
    // The ranks among which the optimiser's state is divided; null: this rank keeps the whole state.
    Agreement* shares = nullptr;
  };

  // Values of an objective after a step. Tensors are scalars on the objective's device.
  struct Readings {
    at::Tensor bad;         // f32: 1 = the last step was not finite
    at::Tensor norm;        // f32: norm of the last gradient
    at::Tensor spikes;      // f64: number of spikes so far
    at::Tensor misfit;      // f32: > 0 if a term wrongly claims per_row
    at::Tensor loss_scale;  // f32; undefined except in fp16
    double learning_rate = 0;
    bool took_part = true;          // the objective had a loss in the last finished step
    GradientSums::Traffic traffic;  // bytes exchanged with the other ranks so far
  };

  // Throws ConfigError if no parameter of the objective requires a gradient. The optimiser gets only the parameters that require
  // a gradient.
  ObjectiveStep(Objective objective, const torch::nn::Module& model, const Options& options);
  ~ObjectiveStep();
  ObjectiveStep(ObjectiveStep&&) noexcept;

  [[nodiscard]] const Objective& spec() const noexcept { return objective_; }
  [[nodiscard]] const std::vector<at::Tensor>& parameters() const noexcept { return parameters_; }
  [[nodiscard]] optim::Optimizer& optimizer() const noexcept { return *optimizer_; }

  // Sets the learning rate for step `step` (0-based) of the run. Steps in which this objective had no loss do not count.
  void begin_step(std::int64_t step);
  // Gives up the present step: drops its micro-batches and gradients. With `ranks`, gradients that are being sent to the other
  // ranks are cancelled first, which is collective; null = no gradients are being sent.
  void drop_step(Agreement* ranks = nullptr);
  // Runs the backward pass of one micro-batch and returns the detached loss. `in_step` says whether this micro-batch is the
  // step's only one over all ranks, and whether it is this rank's last one.
  Loss add(Loss loss, MicroPosition in_step);
  void sum_over(Agreement& agreement);            // adds up gradients and counts over all ranks; collective
  void follow_root(Agreement& agreement);         // Copies from rank 0 the number of steps in which this objective had no loss.
                                                  // Collective.
  [[nodiscard]] bool takes_part() const;          // true if a micro-batch of this step had a loss
  [[nodiscard]] bool host_says_skip() const;      // reads the gradients, so it waits for the device
  void judge(std::optional<bool> bad_says_host);  // decides whether the step counts; nullopt: the device alone decides
  // f32 scalar: 1 if the step is a spike and `bad` says that it is finite. nullopt without optim.spike_zscore.
  [[nodiscard]] std::optional<at::Tensor> spike(const at::Tensor& bad);
  // Updates the parameters unless `skip` is 1 or `applies` is false, calls the objective's after_update, and drops the gradients.
  void finish(const at::Tensor& skip, bool applies, const StepContext& context);
  [[nodiscard]] Readings readings() const;

  void observe_validation(double loss);  // gives the loss of a validation to plateau schedules
  // The learning rate of step `step` (0-based) in a run of `total_steps` steps, without a plateau's factor. The length of this
  // run does not matter.
  [[nodiscard]] double learning_rate_at(std::int64_t step, std::int64_t total_steps) const;
  void use_scale(bool fp16);  // true: the loss is scaled from here on; a change to true starts a new loss scale
  [[nodiscard]] optim::Average* average() const noexcept { return average_.get(); }  // null if optim.ema_decay is 0

  // Names of the form "<parameter>.<word>" are the optimiser's; names without a dot are the objective's. Collective if each rank
  // keeps a part of the state: rank 0 then gets all parts.
  [[nodiscard]] State state() const;
  void load_state(const State& state, const SavedJson& json, const Tensors& average);

 private:
  friend class StepProgress;
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
  optim::OptimConfig asked_;  // the settings as given, before the run's length was known
  Options options_;
  std::vector<at::Tensor> parameters_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<optim::Plateau> plateau_;
  std::unique_ptr<precision::LossScale> scale_;  // set in fp16 only
  std::unique_ptr<optim::Average> average_;      // set if optim.ema_decay is above 0
  std::optional<optim::SpikeRule> spike_rule_;
  std::unique_ptr<Sums> sums_;                   // sums over the micro-batches of the present step
  std::unique_ptr<GradientSums> gradient_sums_;  // set since the first step whose gradients can be sent early
  GradientSums::Traffic traffic_;
  bool keeps_home_ = false;  // true: gradients can't be sent early, so they are added up after the backward pass
  std::int64_t absent_steps_ = 0;
  bool took_part_ = true;
  double learning_rate_ = 0;
  at::Tensor bad_, norm_, spiked_, misfit_;
};

}  // namespace millrace
