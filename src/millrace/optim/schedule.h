// Learning-rate schedules: functions of the step number. Only Plateau has a state, which is part of the snapshot.
#pragma once

#include <cstdint>

#include "millrace/core/saved_json.h"
#include "millrace/optim/config.h"

namespace millrace::optim {

// True if the schedule depends on the run's length: linear, cosine, warmup_cosine, cosine_floor, one_cycle.
[[nodiscard]] bool needs_length(ScheduleKind kind) noexcept;

// With schedule_by = epoch every "step" below means an epoch: the caller passes epochs, and all steps of an epoch have the same
// rate.

// The settings of one run. warmup_frac becomes warmup_steps if the schedule has an end and warmup_steps is 0. learning_rate is
// scaled to `global_batch` by the rule lr_scaling (linear: Goyal et al. 2017, arXiv:1706.02677; sqrt: keeps the noise of Adam's
// steps). A total_steps or global_batch of 0 means that the number is not known; it then changes nothing. Throws ConfigError if
// lr_scaling is set but lr_scaling_batch is not.
[[nodiscard]] OptimConfig settled(OptimConfig config, std::int64_t total_steps, std::int64_t global_batch);

// Throws ConfigError if the schedule needs a number that is missing: total_steps (linear, cosine, warmup_cosine, cosine_floor,
// one_cycle) or decay_every (step). total_steps is 0 if the run has no end.
void check_schedule(const OptimConfig& config, std::int64_t total_steps);

// Learning rate of step `step` (0-based) of `total_steps`; throws as check_schedule(). The first W = warmup_steps steps rise
// linearly: base * (step + 1) / W, or from base * warmup_start if that is not 0. After them, with s = step - W and t = s /
// (total_steps - W), at most 1:
//   constant, plateau       base (the caller multiplies by Plateau::factor)
//   linear                  base + (min - base) * t
//   cosine, warmup_cosine   min + (base - min) * (1 + cos(pi * t)) / 2
//   cosine_floor            max(min, base * (1 + cos(pi * t)) / 2); a warm-up given as a share is rounded up to whole steps
//   step                    base * decay_factor ^ floor(s / decay_every), not below min
// one_cycle rises along half a cosine from base / 25 to base at step R - 1 and falls along another half cosine to min at the
// last step; R is W, or 30 % of the steps when W is 0.
[[nodiscard]] double learning_rate_at(const OptimConfig& config, std::int64_t step, std::int64_t total_steps);

// Reduce-on-plateau as torch.optim.lr_scheduler.ReduceLROnPlateau, mode "min", except for values below 0: the relative threshold
// applies to the magnitude of the best value. (In torch, a negative value that does not change counts as an improvement.)
class Plateau {
 public:
  explicit Plateau(const OptimConfig& config);
  // Call after each validation; NaN and infinity count as no improvement.
  void observe(double metric);
  [[nodiscard]] double factor() const noexcept { return factor_; }  // factor by which the caller multiplies the base rate
  [[nodiscard]] Json state() const;
  void load_state(const SavedJson& state);  // throws SnapshotError if state() can't have written the JSON

 private:
  double decay_;
  double threshold_;
  std::int64_t patience_;
  double min_factor_;
  double factor_ = 1.0;
  double best_;
  std::int64_t bad_ = 0;
};

}  // namespace millrace::optim
