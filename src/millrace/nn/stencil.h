// Convolutions over one channel or within channels, as stencils; the blurred soft pooling and the RMS norm of residual networks.
// These functions are for recipes of images and video. Each uses the fused kernel or the plain ATen path, as nn/fused.h decides.
// All take float tensors (float32, or autocast's type if a function says so), are differentiable in all tensor arguments, and
// compute and sum in fp32.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "millrace/nn/fused.h"

namespace millrace::nn {

// The comment beside a switch names the operations that run if the switch is off; results are equal within tolerance.
// kStencils: convolutions of one channel, or with as many groups as channels; at::grid_sampler
inline constexpr Switch kStencils{"stencils"};
inline constexpr Switch kFusedPooling{"fused_pooling"};   // exp, two poolings, a division
inline constexpr Switch kFusedRmsNorm{"fused_rms_norm"};  // square, mean, rsqrt, product, SiLU

// Gaussian blur of the last two axes of x (..., H, W), one axis after the other, with zeros outside. The kernel has the taps
// exp(-d^2 / 2 sigma^2) for d = -size/2 ... size/2, divided by their sum. `sigma`: a scalar tensor in pixels, above 0; `size` is
// odd. The result has x's shape.
at::Tensor gaussian_blur(const at::Tensor& x, const at::Tensor& sigma, std::int64_t size, const Fused& fused);

// Samples x (..., H, W) at size x size points of a grid: linspace(-1, 1, size) * scale, where -1 and 1 are the centres of the
// first and the last pixel. Bilinear, zeros outside (at::grid_sampler with align_corners). `scale` (2): first horizontal, then
// vertical. Result (..., size, size).
at::Tensor zoom(const at::Tensor& x, const at::Tensor& scale, std::int64_t size, const Fused& fused);

// Applies the same filters over time to every pixel of x (N, 1, T, H, W), without padding: out[c, t] = sum_k weight[c, 0, k] x[t
// + k] for weight (C, 1, K). Result (N, C, T - K + 1, H, W).
at::Tensor temporal_filters(const at::Tensor& x, const at::Tensor& weight, const Fused& fused);

// x * rsqrt(mean over channels of x^2 + eps), then SiLU, for x (N, C, ...). Computed in fp32; the result has x's type.
at::Tensor rms_norm_silu(const at::Tensor& x, double eps, const Fused& fused);

// Convolves each frame of each channel of x (N, C, T, H, W) with [1, 2, 1] x [1, 2, 1] / 16 (zeros outside). Then pools over 2 x
// 2 windows with `stride` and the weights e^x, where x is limited to 30: mean(x e^x) / (mean(e^x) + 1e-6). Computed in fp32; the
// result (N, C, T, (H - 2) / stride + 1, (W - 2) / stride + 1) has x's type.
at::Tensor blurred_soft_pool(const at::Tensor& x, std::int64_t stride, const Fused& fused);

}  // namespace millrace::nn
