// The RMS norm and SiLU of residual networks as one pass.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::kernels {

// silu(h) with h = x * rsqrt(mean over channels of x^2 + epsilon), for x (N, C, ...). The forward pass reads x twice, and the
// backward pass reads x and the gradient twice; the second time, both come from the cache. x and a number for each position are
// saved. Kernels support fp32 or bf16 on the CPU, contiguous or channels last. They compute in fp32, and the result has x's
// layout. All other tensors use the plain path, which saves only x. Differentiable once.
at::Tensor rms_norm_silu(const at::Tensor& x, double epsilon);
// rms_norm_silu() by ATen's operations; types narrower than fp32 are computed in fp32.
at::Tensor rms_norm_silu_plain(const at::Tensor& x, double epsilon);

}  // namespace millrace::kernels
