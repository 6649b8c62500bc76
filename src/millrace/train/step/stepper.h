// One training step: micro-batches through every objective, then the updates. The same code trains, is tried for precision
// and is timed by `millrace bench step`.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/core/agreement.h"
#include "millrace/memory/block_clock.h"
#include "millrace/memory/profile.h"
#include "millrace/precision/overflow_rule.h"
#include "millrace/precision/precision.h"
#include "millrace/telemetry/spans.h"
#include "millrace/train/recipe/recipe.h"
#include "millrace/train/recipe/switchboard.h"
#include "millrace/train/step/buffer_guard.h"
#include "millrace/train/step/micro_place.h"
#include "millrace/train/step/objective_step.h"

namespace millrace {

struct StepperOptions {
  at::Device device = at::kCPU;
  std::uint64_t seed = 0;
  std::optional<at::ScalarType> autocast;  // nullopt = fp32
  std::int64_t total_steps = 0;            // for schedules; 0 = open end
  std::int64_t steps_per_epoch = 0;        // for schedules that count epochs; 0 = not known
  memory::Recompute recompute;             // blocks of the model to compute again
  std::uint64_t offload_bytes = 0;         // activations of at least this size go to host memory; 0 = none
  std::int64_t global_batch = 0;           // for optim.lr_scaling; 0 = not known
  bool trains = true;                      // false: evaluate() alone is called, and nothing is kept for steps
  Agreement* agreement = nullptr;          // of the run's ranks; null = one process
  std::int64_t average_every = 1;  // > 1: each rank steps by its own gradients, and average_over_ranks() is called so often
  bool shards_optimizer = false;   // each rank keeps a part of the optimisers' state: state() is collective
  GradientSumsOptions gradients;   // how gradients travel between ranks; bucket_bytes 0 = together, after the backward pass
};

// What logs and plans say of one objective, as the last update left it.
struct ObjectiveReport {
  std::string name;
  double learning_rate = 0;
  double gradient_norm = 0;
  double spikes = 0;                 // steps left out because this objective's loss or gradient jumped, so far
  std::optional<double> loss_scale;  // in fp16
  bool present = true;               // it had a loss in that step
};

// What the gradients of a trial step are for.
enum class TrialRole : std::uint8_t { reference, compared };

// RecipeError: a run begins with a step that has a loss.
[[noreturn]] void refuse_absence(const Batch& batch);

// Used by the loop's thread only. Nothing a step calls reads a device value on the host, except with device_skip off.
//
// A step whose loss or gradients are not finite, or that is a spike (optim.spike_zscore), counts for nothing: parameters,
// optimiser, averaged weights and running statistics of all objectives stay what they were, to the bit. fp16 scales each
// objective's loss.
class Stepper {
 public:
  Stepper(Recipe& recipe, const Switches& switches, telemetry::Timeline& timeline, const StepperOptions& options);
  ~Stepper();

  void begin_step(std::int64_t step);  // 0-based; sets the learning rates
  // All objectives forward and backward on a prepared micro-batch; `in_step`: among those of this rank. The gradients travel to
  // the other ranks with the one that is said to be the last.
  StepResult accumulate(const Batch& batch, MicroPlace in_step = {});
  // All objectives' optimisers, then gradients are dropped. Collective, but for ranks that average().
  void update();
  // Whether the ranks step for themselves: gradients stay where they are, batch norms see the rows of one rank.
  [[nodiscard]] bool averages() const;
  // Weights, averaged weights, running statistics and optimisers' moments become their means over the ranks (McMahan et al. 2017;
  // the moments too, so that all ranks have one state again), counts and scales those of rank 0. Collective; nothing where the
  // ranks do not average.
  void average_over_ranks();
  [[nodiscard]] std::int64_t averaged_bytes() const noexcept { return averaged_bytes_; }  // that this rank gave, so far
  // Before update(), also after a failed accumulate(): the step begins again from where begin_step() began it. Collective.
  void abandon_step();
  // Losses of a prepared batch without gradients, in evaluation mode.
  StepResult evaluate(const Batch& batch);

  // Forward and backward at the current weights in a format, gradients dropped, buffers put back: nothing changes.
  // Gradients are compared, parameter by parameter, with those of the last reference: of a trial in fp32, unless `role` says.
  precision::Trial try_precision(const Batch& batch, std::optional<at::ScalarType> autocast);
  precision::Trial try_precision(const Batch& batch, std::optional<at::ScalarType> autocast, TrialRole role);
  void end_trials() { trial_reference_.clear(); }             // what they keep to compare with
  void set_autocast(std::optional<at::ScalarType> autocast);  // from here on; fp16 begins with a fresh loss scale
  [[nodiscard]] std::optional<at::ScalarType> autocast() const noexcept { return options_.autocast; }
  // Why half precision should be given up now, one line; nullopt when it should not, or in fp32. Waits for the device.
  [[nodiscard]] std::optional<std::string> overflow() const;
  void forgive() { skipped_in_a_row_.zero_(); }  // what was skipped in a row so far says nothing of what comes

  // One accumulate() of a prepared batch with every block watched, then abandoned: nothing changes. `with_gradients`: as in a
  // step's second micro-step, when gradients are there already.
  memory::StepProfile profile_memory(const Batch& batch, const memory::Recompute& recompute, bool with_gradients);
  // One accumulate() of a prepared batch, then abandoned: nothing changes.
  struct Rehearsed {
    StepResult result;
    std::vector<std::string> without_gradient;  // names of parameters that got none, of the objectives that were present
  };
  Rehearsed rehearse(const Batch& batch);
  [[nodiscard]] at::Device device() const noexcept { return options_.device; }
  [[nodiscard]] std::uint64_t seed() const noexcept { return options_.seed; }
  void set_recompute(memory::Recompute recompute) { options_.recompute = std::move(recompute); }
  bool recompute_all();  // false when nothing more can be: it is so already, or the model has no blocks
  [[nodiscard]] const memory::Recompute& recompute() const noexcept { return options_.recompute; }
  void check_blocks(const memory::Recompute& recompute) const;  // ConfigError for a name that none of blocks() has
  [[nodiscard]] const std::vector<std::string>& blocks() const noexcept { return blocks_.names; }  // after the first accumulate()
  // From here on some steps tell how long they are in each block: one in eight, on a CPU alone, and none of the trials.
  void time_blocks() noexcept { blocks_.timed = options_.device.is_cpu(); }
  [[nodiscard]] const std::vector<memory::BlockClock::Part>& block_times() const noexcept { return blocks_.clock.parts(); }
  // Bytes of a part of the state: "parameters", "buffers", "gradients" (those there are), "optimizer".
  [[nodiscard]] std::map<std::string, std::uint64_t> state_bytes() const;

  [[nodiscard]] std::size_t objectives() const noexcept { return objectives_.size(); }
  [[nodiscard]] const Objective& objective(std::size_t i) const { return objectives_[i].spec(); }
  [[nodiscard]] const std::string& objective_name(std::size_t i) const { return objective(i).name; }
  [[nodiscard]] const std::vector<optim::ParameterGroup>& parameter_groups(std::size_t i) const {
    return objectives_[i].optimizer().groups();
  }
  [[nodiscard]] double learning_rate(std::size_t i) const { return objectives_[i].learning_rate(); }
  [[nodiscard]] double learning_rate_at(std::size_t i, std::int64_t step, std::int64_t total_steps) const {
    return objectives_[i].learning_rate_at(step, total_steps);
  }
  // Of every objective; waits for the device. RecipeError where a term's counts are not what it says of them
  // (LossTerm::per_row).
  [[nodiscard]] std::vector<ObjectiveReport> reports() const;
  [[nodiscard]] const at::Tensor& skipped() const noexcept { return skipped_; }  // f64 scalar: skipped updates so far
  [[nodiscard]] const at::Tensor& skipped_in_a_row() const noexcept { return skipped_in_a_row_; }
  [[nodiscard]] GradientTraffic traffic() const;  // of all objectives to the other ranks, so far
  [[nodiscard]] bool is_finite() const;           // all parameters and running statistics; waits for the device

  // The averaged weights by name, empty where optim.ema_decay is 0; and the model with them until the result is destroyed.
  [[nodiscard]] Tensors averaged_weights() const;
  [[nodiscard]] std::vector<optim::AverageInUse> use_average() const;

  void observe_validation(double loss);  // for plateau schedules
  [[nodiscard]] State state() const;     // optimisers, plateaus, counts, scales; not the averaged weights
  // `average`: as averaged_weights() gave it; empty: averages begin with the model's weights as they are now.
  void load_state(const State& state, const Tensors& average = {});

 private:
  struct Blocks {                    // of the model, as memory.recompute names them
    std::vector<std::string> names;  // in order
    bool known = false;
    bool trying = false;  // within profile_memory
    memory::Watcher* watcher = nullptr;
    memory::BlockClock clock;
    bool timed = false;
  };
  [[nodiscard]] memory::BlockClock* clock_of_step();
  std::optional<Loss> forward(ObjectiveStep& objective, const Batch& batch, const Tensors& earlier, bool training,
                              std::optional<at::ScalarType> autocast);
  void forget_micro_batches();
  void return_to_edge();
  void begin_trial();  // what begins here is undone by end_trial()
  void end_trial(bool training);
  void freeze_all_but(const ObjectiveStep& objective);
  void unfreeze();
  precision::Trial try_scaled(const Batch& batch, std::optional<at::ScalarType> autocast, double scale, TrialRole role);
  std::vector<precision::Trial> try_objectives(const Batch& batch, std::optional<at::ScalarType> autocast, double scale,
                                               TrialRole role);
  precision::Trial try_objective(std::size_t i, const Loss& loss, double scale, TrialRole role, WorkClock& clock);
  bool judge_objectives();
  [[nodiscard]] bool sums_gradients() const { return !agreement().alone() && !averages(); }
  void tally(const at::Tensor& bad);
  [[nodiscard]] Agreement& agreement() const;
  [[nodiscard]] at::Tensor smallest_scale() const;
  [[nodiscard]] std::string prefix_of(const ObjectiveStep& objective) const;

  Recipe& recipe_;
  const Switches& switches_;
  telemetry::Timeline& timeline_;
  StepperOptions options_;
  std::vector<ObjectiveStep> objectives_;
  std::int64_t step_ = 0;
  std::uint64_t epoch_ = 0;  // of the step's last micro-batch
  at::Tensor skipped_, skipped_in_a_row_;
  Blocks blocks_;
  std::optional<precision::OverflowRule> overflow_;  // under autocast
  BufferGuard buffers_;
  std::int64_t averaged_bytes_ = 0;
  std::vector<std::vector<at::Tensor>> trial_reference_;  // gradients of the last reference, by objective
};

}  // namespace millrace
