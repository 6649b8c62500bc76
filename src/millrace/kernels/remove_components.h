// Linear components taken out of many pixels: out = d - A (A^T d), d = x - mean, along the second-last axis.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::kernels {

// x (..., F, P) with P pixels along the last axis, mean (F, 1), components (F, n) with a component a column: all of one type on
// one device. One pass for contiguous fp32 on the CPU; everything else takes the plain path. No gradient.
at::Tensor remove_components(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& components);
// The same as two matrix products. The order of its sums is another, so in fp32 the two differ by rounding of the size of x, not
// of the result.
at::Tensor remove_components_plain(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& components);

}  // namespace millrace::kernels
