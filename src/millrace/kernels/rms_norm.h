// The RMS norm and the SiLU of residual cores as one pass.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::kernels {

// silu(h), h = x * rsqrt(mean over channels of x^2 + epsilon), x (N, C, ...): two passes over x forward and two over x and the
// gradient backward, in memory one of each; what is saved beside x is a number for each position. fp32 or bf16 on the CPU,
// contiguous or channels last, which the result keeps; fp32 inside. Everything else takes the plain path, of which x alone is
// kept too. Differentiable once.
at::Tensor rms_norm_silu(const at::Tensor& x, double epsilon);
// The same from ATen's operations, in fp32 inside where x is narrower.
at::Tensor rms_norm_silu_plain(const at::Tensor& x, double epsilon);

}  // namespace millrace::kernels
