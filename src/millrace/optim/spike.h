// Steps whose loss or gradient jumps far above what was usual, told apart on the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "millrace/core/batch.h"

namespace millrace::optim {

// Watches `count` numbers a step (losses, gradient norms). A step is a spike when one of them is more than `zscore` standard
// deviations above its mean over the last kWindow steps; the deviation is taken as at least 1 % of the mean. The rule begins with
// a full window. A spike enters the window as the limit it broke, so that a lasting change of level is soon the new usual one.
class SpikeRule {
 public:
  static constexpr std::int64_t kWindow = 64;

  SpikeRule(c10::Device device, std::int64_t count, double zscore);

  // `values`: [count]; `bad`: scalar f32, 1 = a step that does not count and leaves the rule as it is. Returns a scalar f32:
  // 1 = spike. Reads nothing back.
  at::Tensor judge(const at::Tensor& values, const at::Tensor& bad);

  [[nodiscard]] State state() const;    // "spike_window" [kWindow, count] f64, "spike_seen" f64
  void load_state(const State& state);  // SnapshotError when it does not fit; nothing is changed then

 private:
  double zscore_;
  at::Tensor window_;  // oldest first
  at::Tensor seen_;    // steps that entered
};

}  // namespace millrace::optim
