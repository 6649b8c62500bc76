// A monitored clamp: if most values are at its border, no gradient passes, which would otherwise stay unnoticed.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace millrace::nn {

// x.clamp(low, high), to the bit. If gradients are recorded and count_clamps(true) was called, values at a border are counted on
// the device under this name: nothing waits.
[[nodiscard]] at::Tensor clamp(const at::Tensor& x, double low, double high, const std::string& name);

struct ClampCount {
  std::string name;
  double low = 0, high = 0;
  double values = 0, at_border = 0;
};
// Counts of this thread since count_clamps(true), by name. Waits for the device.
[[nodiscard]] std::vector<ClampCount> clamp_counts();
void count_clamps(bool on);  // applies to this thread and starts at zero; off at first

}  // namespace millrace::nn
