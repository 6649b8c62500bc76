// A smooth leaky ramp: slope 1/3.5 far below zero, 3/3.5 far above, a cubic between that meets both with their slopes.
//   s(x) = (x for x < -1;  -|x|^3/3 + x^2 + 2x + 1/3 for -1 <= x < 1;  3x for x >= 1) / 3.5
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::kernels {

// One pass forward and one backward; fp32 or bf16 on the CPU, any dense layout, which the result keeps. Differentiable. Tensors
// without a kernel (other types and devices) use the plain path, which keeps only x.
at::Tensor smooth_leaky(const at::Tensor& x);
// smooth_leaky() by ATen's operations, following the formula, in fp32 inside if x is narrower.
at::Tensor smooth_leaky_plain(const at::Tensor& x);

}  // namespace millrace::kernels
