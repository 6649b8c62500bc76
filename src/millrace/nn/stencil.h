// Convolutions over one channel or within channels, as stencils; the blurred soft pooling and the RMS norm of residual cores.
// Functions for recipes of images and video: each uses the fused kernel or the plain ATen path, as nn/fused.h decides. All take
// float tensors (float32, or autocast's type if a function says so) and are differentiable in all tensor arguments; all compute
// and sum in fp32.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "millrace/nn/fused.h"

namespace millrace::nn {

// Operations that run if a switch is off; equal within tolerance:
inline constexpr Switch kStencils{"stencils"};  // convolutions of one channel or of as many groups as channels; at::grid_sampler
inline constexpr Switch kFusedPooling{"fused_pooling"};   // exp, two poolings, a division
inline constexpr Switch kFusedRmsNorm{"fused_rms_norm"};  // square, mean, rsqrt, product, SiLU

// Gaussian blur of the last two axes of x (..., H, W): kernel taps exp(-d^2 / 2 sigma^2), d = -size/2 ... size/2, divided by
// their sum, one axis after the other, zeros outside. `sigma`: a scalar tensor in pixels, above 0; `size` odd. Result like x.
at::Tensor gaussian_blur(const at::Tensor& x, const at::Tensor& sigma, std::int64_t size, const Fused& fused);

// x (..., H, W) sampled at size x size points of a grid: linspace(-1, 1, size) * scale, with -1 and 1 at the centres of the first
// and the last pixel; bilinear, zeros outside (at::grid_sampler with align_corners). `scale` (2): of x, then of y. Result (...,
// size, size).
at::Tensor zoom(const at::Tensor& x, const at::Tensor& scale, std::int64_t size, const Fused& fused);

// x (N, 1, T, H, W), weight (C, 1, K): the same filters over time for every pixel, no padding: result (N, C, T - K + 1, H, W),
// out[c, t] = sum_k weight[c, 0, k] x[t + k].
at::Tensor temporal_filters(const at::Tensor& x, const at::Tensor& weight, const Fused& fused);

// x * rsqrt(mean over channels of x^2 + eps), then SiLU; x (N, C, ...). fp32 inside, result in x's type.
at::Tensor rms_norm_silu(const at::Tensor& x, double eps, const Fused& fused);

// x (N, C, T, H, W): each frame of each channel is convolved with [1, 2, 1] x [1, 2, 1] / 16 (zeros outside), then pooled over 2
// x 2 windows with `stride` by weights e^x: mean(x e^x) / (mean(e^x) + 1e-6), e^x of min(x, 30). fp32 inside, result in x's type,
// (N, C, T, (H - 2) / stride + 1, (W - 2) / stride + 1).
at::Tensor blurred_soft_pool(const at::Tensor& x, std::int64_t stride, const Fused& fused);

}  // namespace millrace::nn
