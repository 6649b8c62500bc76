// Removes linear components from many pixels: out = d - A (A^T d), d = x - mean, along the second-last axis.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::kernels {

// x (..., F, P) with P pixels along the last axis, mean (F, 1), components (F, n) with a component in each column: all of the
// same type on the same device. One pass for contiguous fp32 on the CPU; all other tensors use the plain path. No gradient.
at::Tensor remove_components(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& components);
// remove_components() as two matrix products. They add in another order, so in fp32 the two differ by rounding relative to x, not
// to the result.
at::Tensor remove_components_plain(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& components);

}  // namespace millrace::kernels
