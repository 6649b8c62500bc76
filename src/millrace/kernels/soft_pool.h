// The blurred soft pooling of residual cores as one pass.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::kernels {

// x (N, C, T, H, W), H and W at least 2: each plane blurred by [1, 2, 1] x [1, 2, 1] / 16 (zeros outside) to b, then pooled over
// 2 x 2 windows by weights e = exp(min(b, 30)): mean(b e) / (mean(e) + 1e-6), (N, C, T, (H - 2) / stride + 1, (W - 2) / stride +
// 1). One pass forward and one backward; only x is saved. fp32 or bf16 on the CPU, contiguous or channels last, which the result
// keeps; fp32 inside. All other tensors use the plain path, which also keeps only x. Differentiable once.
at::Tensor blurred_soft_pool(const at::Tensor& x, std::int64_t stride);
// blurred_soft_pool() by ATen's operations, in fp32 inside if x is narrower.
at::Tensor blurred_soft_pool_plain(const at::Tensor& x, std::int64_t stride);

}  // namespace millrace::kernels
