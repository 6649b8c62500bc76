// Detects steps whose loss or gradient jumps far above its usual values. Works on the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "millrace/core/batch.h"

namespace millrace::optim {

// Watches `count` numbers of each step (losses, gradient norms). A step is a spike if at least one number is more than `zscore`
// standard deviations above its mean over the last kWindow steps. The deviation counts as at least 1 % of the mean. The rule
// starts when the window is full. A spike enters the window as the limit that it exceeded, so that a lasting change of level soon
// becomes usual.
class SpikeRule {
 public:
  static constexpr std::int64_t kWindow = 64;

  SpikeRule(c10::Device device, std::int64_t count, double zscore);

  // `values`: [count]. `bad`: scalar f32, 1 = the step does not count and leaves the rule unchanged. Returns a scalar f32, 1 =
  // spike. Reads no device value on the host.
  at::Tensor judge(const at::Tensor& values, const at::Tensor& bad);

  [[nodiscard]] State state() const;    // "spike_window" [kWindow, count] f64, "spike_seen" f64
  void load_state(const State& state);  // throws SnapshotError if the state does not fit; then nothing is changed

 private:
  double zscore_;
  at::Tensor window_;  // oldest first
  at::Tensor seen_;    // number of steps in the window
};

}  // namespace millrace::optim
