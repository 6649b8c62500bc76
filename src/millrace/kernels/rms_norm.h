// The RMS norm and SiLU of residual networks as one pass.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::kernels {

// silu(h) with h = x * rsqrt(mean over channels of x^2 + epsilon), for x (N, C, ...). Each direction makes two passes, over x
// forward and over x and the gradient backward; the second pass reads from the cache. Saved are x and a number for each position.
// Kernels support fp32 or bf16 on the CPU, contiguous or channels last, which the result keeps; they compute in fp32. All other
// tensors use the plain path, which also keeps only x. Differentiable once.
at::Tensor rms_norm_silu(const at::Tensor& x, double epsilon);
// rms_norm_silu() by ATen's operations; types narrower than fp32 are computed in fp32.
at::Tensor rms_norm_silu_plain(const at::Tensor& x, double epsilon);

}  // namespace millrace::kernels
