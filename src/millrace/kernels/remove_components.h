// Removes linear components from many pixels: out = d - A (A^T d) with d = x - mean, along the second-last axis.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::kernels {

// x (..., F, P) has P pixels along the last axis; mean is (F, 1); each column of components (F, n) is a component. All have the
// same type and device. Contiguous fp32 on the CPU takes one pass; all other tensors use the plain path. Not differentiable.
at::Tensor remove_components(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& components);
// remove_components() as two matrix products. The products add in another order, so in fp32 the results of the two functions
// differ by rounding errors that are relative to x, not to the result.
at::Tensor remove_components_plain(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& components);

}  // namespace millrace::kernels
