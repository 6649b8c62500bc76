// The blurred soft pooling of residual networks as one pass.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::kernels {

// x is (N, C, T, H, W) with H and W at least 2. Each plane is blurred by [1, 2, 1] x [1, 2, 1] / 16 (zeros outside), which gives
// b. b is then pooled over 2 x 2 windows with the weights e = exp(min(b, 30)): mean(b e) / (mean(e) + 1e-6). The result is (N,
// C, T, (H - 2) / stride + 1, (W - 2) / stride + 1), in x's layout. One pass forward and one backward; only x is saved. Kernels
// support fp32 or bf16 on the CPU, these and fp16 on a device with kernels, contiguous or channels last. They compute in fp32.
// All other tensors use the plain path, which also saves only x. Differentiable once.
at::Tensor blurred_soft_pool(const at::Tensor& x, std::int64_t stride);
// blurred_soft_pool() by ATen's operations; types narrower than fp32 are computed in fp32.
at::Tensor blurred_soft_pool_plain(const at::Tensor& x, std::int64_t stride);

}  // namespace millrace::kernels
