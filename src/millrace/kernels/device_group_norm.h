// A group norm with its activation on a device other than the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include "millrace/kernels/group_norm.h"

namespace millrace::kernels {

// True if device_group_norm() has a kernel for these tensors.
[[nodiscard]] bool has_device_group_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

struct DeviceNormed {
  at::Tensor y;
  // x itself, for other operations that read x; the norm's last pass adds the gradient of these operations to its own gradient
  // of x.
  at::Tensor x;
};
// group_norm() of x + before on a device other than the CPU. `before` (C), fp32, is a bias that x lacks, or undefined. No
// separate pass adds `before`, and its gradient comes from sums that the norm computes in any case. Forward: one pass over x for
// the statistics and one for the result. Backward: two passes over x and the gradient.
[[nodiscard]] DeviceNormed device_group_norm(const at::Tensor& x, const at::Tensor& before, const at::Tensor& weight,
                                             const at::Tensor& bias, const GroupNormOptions& options);

}  // namespace millrace::kernels
