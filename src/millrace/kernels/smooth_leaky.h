// A smooth leaky ReLU: slope 1/3.5 far below zero and 3/3.5 far above, and between them a cubic that continues both without a
// kink.
//   s(x) = (x for x < -1;  -|x|^3/3 + x^2 + 2x + 1/3 for -1 <= x < 1;  3x for x >= 1) / 3.5
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::kernels {

// s(x), in one pass forward and one backward. Kernels support fp32 or bf16 on the CPU in any dense layout; the result has x's
// layout. Tensors without a kernel (other types and devices) use the plain path, which saves only x. Differentiable once.
at::Tensor smooth_leaky(const at::Tensor& x);
// smooth_leaky() by ATen's operations; types narrower than fp32 are computed in fp32.
at::Tensor smooth_leaky_plain(const at::Tensor& x);

}  // namespace millrace::kernels
