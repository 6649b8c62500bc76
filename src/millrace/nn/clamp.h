// A clamp that is watched: where most values are at its border no gradient goes through, and nothing else would say so.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace millrace::nn {

// x.clamp(low, high), to the bit. Where gradients are recorded, and count_clamps() asked for it, values at a border are counted
// on the device under this name: nothing waits.
[[nodiscard]] at::Tensor clamp(const at::Tensor& x, double low, double high, const std::string& name);

// Of this thread, since count_clamps(true), by name. Waits for the device.
struct ClampCount {
  std::string name;
  double low = 0, high = 0;
  double values = 0, at_border = 0;
};
[[nodiscard]] std::vector<ClampCount> clamp_counts();
void count_clamps(bool on);  // in this thread, from nothing; it is off at first

}  // namespace millrace::nn
