// The RMS norm and the SiLU of residual cores as one pass.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::kernels {

// silu(h), h = x * rsqrt(mean over channels of x^2 + epsilon), x (N, C, ...): two passes over x forward and two over x and the
// gradient backward, of which memory sees one each; saved are x and a number for each position. fp32 or bf16 on the CPU,
// contiguous or channels last, which the result keeps; fp32 inside. All other tensors use the plain path, which also keeps only
// x. Differentiable once.
at::Tensor rms_norm_silu(const at::Tensor& x, double epsilon);
// rms_norm_silu() by ATen's operations, in fp32 inside if x is narrower.
at::Tensor rms_norm_silu_plain(const at::Tensor& x, double epsilon);

}  // namespace millrace::kernels
