// A group norm with its activation on a device other than the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include "millrace/kernels/group_norm.h"

namespace millrace::kernels {

// True if device_group_norm() has a kernel for these tensors.
[[nodiscard]] bool has_device_group_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);
// group_norm() on such a device. Forward: one pass over x for the statistics and one for the result. Backward: two passes over x
// and the gradient.
[[nodiscard]] at::Tensor device_group_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                           const GroupNormOptions& options);

}  // namespace millrace::kernels
