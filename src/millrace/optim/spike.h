// Detects on the device steps whose loss or gradient jumps far above its usual values.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "millrace/core/batch.h"

namespace millrace::optim {

// Watches `count` numbers a step (losses, gradient norms). A step is a spike if one of them is more than `zscore` standard
// deviations above its mean over the last kWindow steps; the deviation is taken as at least 1 % of the mean. The rule starts with
// a full window. A spike enters the window as the limit it exceeded, so that a lasting change of level soon becomes usual.
class SpikeRule {
 public:
  static constexpr std::int64_t kWindow = 64;

  SpikeRule(c10::Device device, std::int64_t count, double zscore);

  // `values`: [count]; `bad`: scalar f32, 1 = a step that does not count and leaves the rule unchanged. Returns a scalar f32: 1 =
  // spike. Reads nothing back.
  at::Tensor judge(const at::Tensor& values, const at::Tensor& bad);

  [[nodiscard]] State state() const;    // "spike_window" [kWindow, count] f64, "spike_seen" f64
  void load_state(const State& state);  // SnapshotError if it does not fit; then nothing is changed

 private:
  double zscore_;
  at::Tensor window_;  // oldest first
  at::Tensor seen_;    // number of steps in the window
};

}  // namespace millrace::optim
