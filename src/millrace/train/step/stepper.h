// One training step: micro-batches through every objective, then the updates. Training, trials (step_trials.h) and `millrace
// bench step` use the same code.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/core/agreement.h"
#include "millrace/telemetry/spans.h"
#include "millrace/train/recipe/recipe.h"
#include "millrace/train/recipe/switchboard.h"
#include "millrace/train/step/buffer_guard.h"
#include "millrace/train/step/detail/model_blocks.h"
#include "millrace/train/step/detail/skip_count.h"
#include "millrace/train/step/micro_position.h"
#include "millrace/train/step/objective_step.h"

namespace millrace {

class StepGraph;
class StepLaunches;
struct HostReads;

// Throws the RecipeError for a run in whose first step no objective has a loss.
[[noreturn]] void refuse_absence(const Batch& batch);

// Called for each objective that has a loss, between its forward and its backward pass.
using LossVisitor = std::function<void(const std::string& objective, const Loss& loss)>;

// Used by the loop's thread only. A step reads no device value on the host, except with device_skip off.
//
// A step whose loss or gradients are not finite, or that is a spike (optim.spike_zscore), is skipped: parameters, optimiser,
// averaged weights and running statistics of all objectives stay unchanged, to the bit. fp16 scales each objective's loss.
class Stepper {
 public:
  struct Options {
    at::Device device = at::kCPU;
    std::uint64_t seed = 0;
    std::optional<at::ScalarType> autocast;  // nullopt = fp32
    std::int64_t total_steps = 0;            // used by schedules; 0 = the run has no fixed end
    std::int64_t steps_per_epoch = 0;        // used by schedules that count epochs; 0 = not known
    memory::Recompute recompute;             // blocks of the model to recompute
    std::uint64_t offload_bytes = 0;         // activations of at least this size go to host memory; 0 = no offloading
    std::int64_t global_batch = 0;           // used by optim.lr_scaling; 0 = not known
    bool trains = true;                      // false: only evaluate() is called, and no state for steps is kept
    Agreement* agreement = nullptr;          // connects the run's ranks; null = one process
    // If this is above 1, each rank steps with its own gradients, and average_over_ranks() is called every `average_every` steps.
    std::int64_t average_every = 1;
    bool shards_optimizer = false;  // each rank keeps a part of the optimisers' state, so state() is collective
    GradientSumsOptions gradients;  // how gradients are sent between ranks; bucket_bytes 0: all gradients together, after the
                                    // backward pass
  };

  Stepper(Recipe& recipe, const Switches& switches, telemetry::Timeline& timeline, const Options& options);
  ~Stepper();

  void begin_step(std::int64_t step);  // `step` is 0-based; sets the learning rates
  // Runs all objectives forward and backward on a prepared micro-batch. `in_step` is its position among this rank's micro-batches
  // of the step. The gradients are sent to the other ranks with the step's last micro-batch.
  StepResult accumulate(const Batch& batch, MicroPosition in_step = {}, const LossVisitor& visit = nullptr);
  // Runs all objectives' optimisers, then drops the gradients. Collective, unless averages() is true.
  void update();
  // Returns everything to the state at begin_step(). Called before the step is tried again, also after a failed accumulate().
  // Collective.
  void abandon_step();
  // Losses of a prepared batch without gradients, in evaluation mode.
  StepResult evaluate(const Batch& batch);

  // True if each rank steps separately: gradients are not exchanged, and batch norms see only the rank's own rows.
  [[nodiscard]] bool averages() const;
  // Replaces weights, averaged weights, running statistics and optimisers' moments by their means over the ranks (McMahan et al.
  // 2017; the moments are averaged too, so that all ranks have the same state again). Counts and scales become rank 0's.
  // Collective; does nothing if averages() is false. Returns the bytes that this rank sent.
  std::int64_t average_over_ranks();

  void set_autocast(std::optional<at::ScalarType> autocast);  // uses this number format from here on; a change to fp16 starts a
                                                              // new loss scale
  [[nodiscard]] std::optional<at::ScalarType> autocast() const noexcept { return options_.autocast; }
  [[nodiscard]] at::Device device() const noexcept { return options_.device; }
  [[nodiscard]] std::uint64_t seed() const noexcept { return options_.seed; }
  [[nodiscard]] torch::nn::Module& model() const { return recipe_.model(); }
  [[nodiscard]] bool is_finite() const;  // true if all parameters and running statistics are finite; waits for the device

  [[nodiscard]] const std::vector<ObjectiveStep>& objectives() const noexcept { return objectives_; }
  [[nodiscard]] std::vector<ObjectiveStep>& objectives() noexcept { return objectives_; }
  [[nodiscard]] const std::string& objective_name(std::size_t i) const { return objectives_[i].spec().name; }
  [[nodiscard]] const ModelBlocks& blocks() const noexcept { return blocks_; }
  [[nodiscard]] ModelBlocks& blocks() noexcept { return blocks_; }
  [[nodiscard]] const SkipCount& skips() const noexcept { return skips_; }
  [[nodiscard]] SkipCount& skips() noexcept { return skips_; }

 private:
  friend class StepTrials;
  friend class StepGraph;
  std::optional<Loss> forward(ObjectiveStep& objective, const Batch& batch, const Tensors& earlier, bool training,
                              std::optional<at::ScalarType> autocast, StepLaunches* launches = nullptr);
  void seed_loss(const ObjectiveStep& objective, const Batch& batch) const;
  StepResult passes(const Batch& batch, MicroPosition in_step, const LossVisitor& visit, StepLaunches& launches);
  void update_by(StepLaunches& launches);
  void update_here(HostReads* reads);
  void drop_step(Agreement* ranks);
  void freeze_all_but(const ObjectiveStep& objective);
  void unfreeze();
  bool judge_objectives();
  [[nodiscard]] bool sums_gradients() const { return !agreement().alone() && !averages(); }
  [[nodiscard]] Agreement& agreement() const;
  [[nodiscard]] at::Tensor smallest_scale() const;

  Recipe& recipe_;
  const Switches& switches_;
  telemetry::Timeline& timeline_;
  Options options_;
  std::vector<ObjectiveStep> objectives_;
  std::int64_t step_ = 0;
  std::uint64_t epoch_ = 0;  // epoch of the step's last micro-batch
  SkipCount skips_;
  ModelBlocks blocks_;
  BufferGuard buffers_;
  std::unique_ptr<StepGraph> graph_;  // null: steps are launched piece by piece
};

}  // namespace millrace
