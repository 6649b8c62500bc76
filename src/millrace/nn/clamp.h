// A clamp that counts values at its borders. If most values are at a border, hardly any gradient passes, which nobody would
// notice without the count.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace millrace::nn {

// x.clamp(low, high), to the bit. If gradients are recorded and count_clamps(true) was called, also counts values at a border
// under `name`. The device counts, and the host does not wait.
[[nodiscard]] at::Tensor clamp(const at::Tensor& x, double low, double high, const std::string& name);

struct ClampCount {
  std::string name;
  double low = 0, high = 0;
  double values = 0, at_border = 0;
};
// The counts of this thread since count_clamps(true), by name. Waits for the device.
[[nodiscard]] std::vector<ClampCount> clamp_counts();
void count_clamps(bool on);  // for this thread; each call also sets its counts to zero; off at first

}  // namespace millrace::nn
