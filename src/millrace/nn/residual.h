// What residual autoencoders of volumes call: group and instance norms with the activation behind them, the upsampling with the
// convolution behind it, and the convolutions that stand alone. Each function takes the fused way or the plain ATen path, by a
// flag a recipe fills from the switchboard. All take float tensors and are differentiable once in all tensor arguments.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace millrace::nn {

// true = the fused way, false = its plain path; each equal within tolerance.
struct ResidualPaths {
  bool fused_group_norm = true;   // at::native_group_norm, then at::silu; at::instance_norm, then at::leaky_relu
  bool lean_norms = true;         // the norm's result is kept for the convolution's gradient; equal to the bit
  bool phased_upsampling = true;  // at::upsample_nearest3d, then at::conv3d
  bool voxel_products = true;     // at::conv3d
};

// Group norm of x (N, C, D, H, W) over `groups` runs of channels, which divide C: (x - mean) / sqrt(variance + eps) * weight +
// bias, then SiLU where `silu`. weight and bias (C), fp32. Statistics and arithmetic in fp32; result in x's type, under autocast
// in autocast's, which the convolution behind it wants; x's layout, contiguous or channels last.
at::Tensor group_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, std::int64_t groups, double eps,
                      bool silu, const ResidualPaths& paths);

// group_norm with SiLU where `silu`, then a convolution with weight (O, C, 3, 3, 3), bias (O), padding 1. Under autocast in its
// type.
at::Tensor normed_conv3d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, std::int64_t groups, double eps,
                         bool silu, const at::Tensor& conv_weight, const at::Tensor& conv_bias, const ResidualPaths& paths);

// Instance norm without parameters over D, H and W of each row and channel of x (N, C, D, H, W), then a leaky ReLU of `slope`
// below zero. Types and layout as group_norm's.
at::Tensor instance_norm_leaky(const at::Tensor& x, double eps, double slope, const ResidualPaths& paths);

// x (N, C, D, H, W), each voxel repeated to 2 x 2 x 2, then a convolution with weight (O, C, 3, 3, 3), bias (O), padding 1: (N,
// O, 2D, 2H, 2W). Under autocast in its type.
at::Tensor upsampled_conv3d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const ResidualPaths& paths);

// A convolution of x (N, C, D, H, W), with `padding` zeros on each side, with weight (O, C, K, K, K) every `stride` voxels; bias
// (O) or undefined. Under autocast in its type. Where the result has few voxels and many channels, as matrix products.
at::Tensor conv3d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, std::int64_t stride,
                  std::int64_t padding, const ResidualPaths& paths);

}  // namespace millrace::nn
