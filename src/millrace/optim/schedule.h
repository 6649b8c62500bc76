// Learning-rate schedules: pure functions of the step. Plateau alone has a state, which is part of the snapshot.
#pragma once

#include <cstdint>

#include "millrace/base/json.h"
#include "millrace/optim/config.h"

namespace millrace::optim {

// Learning rate of step `step` (0-based) of `total_steps`. total_steps may be 0 for schedules that do not need it (constant,
// step); those that do throw ConfigError naming train.max_steps. Formulas: docs in schedule.cpp's tests; cosine is
// min + (base - min) * (1 + cos(pi * t)) / 2 with t the share of the steps after warm-up.
[[nodiscard]] double learning_rate_at(const OptimConfig& config, std::int64_t step, std::int64_t total_steps);

// Reduce-on-plateau (as torch.optim.lr_scheduler.ReduceLROnPlateau, mode "min", relative threshold).
class Plateau {
 public:
  explicit Plateau(const OptimConfig& config);
  void observe(double metric);                                      // after each validation; NaN counts as no improvement
  [[nodiscard]] double factor() const noexcept { return factor_; }  // multiplies the base rate
  [[nodiscard]] Json state() const;
  void load_state(const Json& state);

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
