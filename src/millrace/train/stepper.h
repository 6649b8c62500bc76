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

#include "millrace/memory/profile.h"
#include "millrace/optim/average.h"
#include "millrace/optim/schedule.h"
#include "millrace/optim/spike.h"
#include "millrace/precision/loss_scale.h"
#include "millrace/precision/overflow_rule.h"
#include "millrace/precision/precision.h"
#include "millrace/telemetry/spans.h"
#include "millrace/train/buffer_guard.h"
#include "millrace/train/recipe.h"
#include "millrace/train/switchboard.h"

namespace millrace {

struct StepperOptions {
  at::Device device = at::kCPU;
  std::uint64_t seed = 0;
  std::optional<at::ScalarType> autocast;  // nullopt = fp32
  std::int64_t total_steps = 0;            // for schedules; 0 = open end
  memory::Recompute recompute;             // blocks of the model to compute again
  std::uint64_t offload_bytes = 0;         // activations of at least this size go to host memory; 0 = none
  bool recovers = true;                    // abandon_step() will be asked for: begin_step() notes what a step moves
  std::int64_t global_batch = 0;           // for optim.lr_scaling; 0 = not known
  bool trains = true;                      // false: evaluate() alone is called, and nothing is kept for steps
};

// What a loss's report, or else its sum over its count, comes to: an fp64 scalar on its device.
[[nodiscard]] at::Tensor shown(const Loss& loss);

// Used by the loop's thread only. Nothing a step calls reads a device value on the host, except with device_skip off.
//
// A step whose loss or gradients are not finite, or that is a spike (optim.spike_zscore), counts for nothing: parameters,
// optimiser, averaged weights and running statistics of all objectives stay what they were, to the bit. fp16 scales each
// objective's loss.
class Stepper {
 public:
  Stepper(Recipe& recipe, const Switches& switches, telemetry::Timeline& timeline, StepperOptions options);
  ~Stepper();

  void begin_step(std::int64_t step);         // 0-based; sets the learning rates
  StepResult accumulate(const Batch& batch);  // one micro-step of a prepared batch: all objectives forward and backward
  void update();                              // all objectives' optimisers, then gradients are dropped
  // Before update(), and after a failed accumulate(): as begin_step() found it, but for that step being begun.
  void abandon_step();
  // Losses of a prepared batch without gradients, in evaluation mode.
  StepResult evaluate(const Batch& batch);

  // Forward and backward at the current weights in a format, gradients dropped, buffers put back: nothing changes.
  precision::Trial try_precision(const Batch& batch, std::optional<at::ScalarType> autocast);
  void end_trials() { trial_reference_.clear(); }             // what they keep to compare with
  void set_autocast(std::optional<at::ScalarType> autocast);  // from here on; fp16 begins with a fresh loss scale
  [[nodiscard]] std::optional<at::ScalarType> autocast() const noexcept { return options_.autocast; }
  // Why half precision should be given up now, one line; nullopt when it should not, or in fp32. Waits for the device.
  [[nodiscard]] std::optional<std::string> overflow() const;
  void forgive() { skipped_in_a_row_.zero_(); }  // what was skipped in a row so far says nothing of what comes

  // One accumulate() of a prepared batch with every block watched, then abandoned: nothing changes. `with_gradients`: as in a
  // step's second micro-step, when gradients are there already.
  memory::StepProfile profile_memory(const Batch& batch, const memory::Recompute& recompute, bool with_gradients);
  [[nodiscard]] at::Device device() const noexcept { return options_.device; }
  void set_recompute(memory::Recompute recompute) { options_.recompute = std::move(recompute); }
  bool recompute_all();  // false when nothing more can be: it is so already, or the model has no blocks
  [[nodiscard]] const memory::Recompute& recompute() const noexcept { return options_.recompute; }
  void check_blocks(const memory::Recompute& recompute) const;  // ConfigError for a name that none of blocks() has
  [[nodiscard]] const std::vector<std::string>& blocks() const noexcept { return blocks_; }  // after the first accumulate()
  // Bytes of a part of the state: "parameters", "buffers", "gradients" (those there are), "optimizer".
  [[nodiscard]] std::map<std::string, std::uint64_t> state_bytes() const;

  [[nodiscard]] std::size_t objectives() const noexcept { return lanes_.size(); }
  [[nodiscard]] const std::string& objective_name(std::size_t i) const { return lanes_[i].objective.name; }
  [[nodiscard]] const std::vector<optim::ParameterGroup>& parameter_groups(std::size_t i) const {
    return lanes_[i].optimizer->groups();
  }
  [[nodiscard]] double learning_rate(std::size_t i) const { return lanes_[i].learning_rate; }
  [[nodiscard]] const at::Tensor& gradient_norm() const noexcept { return gradient_norm_; }  // of objective 0, last update
  [[nodiscard]] const at::Tensor& skipped() const noexcept { return skipped_; }              // f64 scalar: skipped updates so far
  [[nodiscard]] const at::Tensor& skipped_in_a_row() const noexcept { return skipped_in_a_row_; }
  [[nodiscard]] const at::Tensor& spikes() const noexcept { return spiked_; }  // f64 scalar: steps left out as spikes
  [[nodiscard]] std::optional<double> loss_scale() const;                      // the smallest, in fp16; waits for the device
  [[nodiscard]] bool is_finite() const;  // all parameters and running statistics; waits for the device

  // The averaged weights by name, empty where optim.ema_decay is 0; and the model with them until the result is destroyed.
  [[nodiscard]] Tensors averaged_weights() const;
  [[nodiscard]] std::vector<optim::AverageInUse> use_average() const;

  void observe_validation(double loss);  // for plateau schedules
  [[nodiscard]] State state() const;     // optimisers, plateaus, counts, scales; not the averaged weights
  // `average`: as averaged_weights() gave it; empty: averages begin with the model's weights as they are now.
  void load_state(const State& state, const Tensors& average = {});

 private:
  struct Lane {
    Objective objective;
    std::unique_ptr<optim::Optimizer> optimizer;
    std::optional<optim::Plateau> plateau;
    std::vector<at::Tensor> parameters;
    double nominal = 0;  // of this step; 0 = no micro-batch yet
    at::Tensor count;    // of this step so far
    double learning_rate = 0;
    std::unique_ptr<precision::LossScale> scale;  // fp16 only
    std::unique_ptr<optim::Average> average;      // with optim.ema_decay
    at::Tensor bad;                               // of this step: 1 = not finite
    at::Tensor norm;                              // of the last gradient
    std::optional<Loss> seen;                     // sums of this step's losses, for the spike rule
  };
  Loss forward(Lane& lane, const Batch& batch, const Tensors& earlier, bool training, std::optional<at::ScalarType> autocast);
  void forget_micro_steps();
  void return_to_edge();
  void freeze_all_but(const Lane& lane);
  void unfreeze();
  precision::Trial try_scaled(const Batch& batch, std::optional<at::ScalarType> autocast, double scale);
  bool host_says_skip(const Lane& lane) const;
  bool judge_lanes();
  void tally(const at::Tensor& bad);
  [[nodiscard]] at::Tensor watched() const;
  [[nodiscard]] at::Tensor smallest_scale() const;

  Recipe& recipe_;
  const Switches& switches_;
  telemetry::Timeline& timeline_;
  StepperOptions options_;
  std::vector<Lane> lanes_;
  std::int64_t step_ = 0;
  std::uint64_t micro_step_ = 0;
  at::Tensor gradient_norm_;
  at::Tensor skipped_;
  at::Tensor skipped_in_a_row_;
  std::vector<std::string> blocks_;  // the model's, in order
  bool blocks_known_ = false;
  bool trying_ = false;  // within profile_memory
  memory::Watcher* watcher_ = nullptr;
  State edge_generator_;  // at begin_step
  at::Tensor spiked_;
  std::optional<precision::OverflowRule> overflow_;  // under autocast
  std::optional<optim::SpikeRule> spikes_;
  BufferGuard buffers_;
  std::vector<at::Tensor> trial_reference_;  // gradients of the last fp32 trial
};

}  // namespace millrace
