// Computes norms of gradients and clips them on the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace millrace::optim::detail {

// Each list holds gradients of one dtype.
using GradientLists = std::vector<std::vector<at::Tensor>*>;

// The L2 norm over all lists, as an f32 scalar on the device of the gradients. If all lists are empty: 0, on `device`.
[[nodiscard]] at::Tensor norm_of(const GradientLists& lists, const at::Device& device);

// Multiplies all gradients by `factor` (a scalar on the device) in place, then clamps each element to +-limit.
void scale_and_clamp(const GradientLists& lists, const at::Tensor& factor, double limit);

// The factor of torch's clip_grad_norm_: limit / (norm + 1e-6), at most 1.
[[nodiscard]] at::Tensor clip_coefficient(const at::Tensor& norm, double limit);

}  // namespace millrace::optim::detail
