// Functions for residual autoencoders of volumes: group and instance norms followed by the activation, the upsampling followed by
// its convolution, and separate convolutions. Each function uses the fused operation or the plain ATen path, as nn/fused.h
// decides. All take float tensors and are differentiable once in all tensor arguments.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "millrace/nn/fused.h"

namespace millrace::nn {

// Operations that run if a switch is off; equal within tolerance, kLeanNorms to the bit:
inline constexpr Switch kFusedGroupNorm{"fused_group_norm"};  // ATen's group norm, then SiLU; its instance norm, then leaky ReLU
inline constexpr Switch kLeanNorms{"lean_norms"};             // the norm's result is kept for the convolution's gradient
inline constexpr Switch kPhasedUpsampling{"phased_upsampling"};  // at::upsample_nearest3d, then at::conv3d
inline constexpr Switch kVoxelProducts{"voxel_products"};        // at::conv3d

// Group norm of x (N, C, D, H, W) over `groups` runs of channels, which divide C: (x - mean) / sqrt(variance + eps) * weight +
// bias, then SiLU if `silu`. weight and bias (C), fp32. Statistics and arithmetic in fp32; result in x's type, under autocast in
// autocast's, as the next convolution needs it; x's layout, contiguous or channels last.
at::Tensor group_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, std::int64_t groups, double eps,
                      bool silu, const Fused& fused);

// group_norm with SiLU if `silu`, then a convolution with weight (O, C, 3, 3, 3), bias (O), padding 1. Under autocast in its
// type.
at::Tensor normed_conv3d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, std::int64_t groups, double eps,
                         bool silu, const at::Tensor& conv_weight, const at::Tensor& conv_bias, const Fused& fused);

// Instance norm without parameters over D, H and W of each row and channel of x (N, C, D, H, W), then a leaky ReLU of `slope`
// below zero. Types and layout as group_norm's.
at::Tensor instance_norm_leaky(const at::Tensor& x, double eps, double slope, const Fused& fused);

// x (N, C, D, H, W) with each voxel repeated to 2 x 2 x 2, then a convolution with weight (O, C, 3, 3, 3), bias (O), padding 1:
// (N, O, 2D, 2H, 2W). Under autocast in its type.
at::Tensor upsampled_conv3d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const Fused& fused);

// A convolution of x (N, C, D, H, W), with `padding` zeros on each side, with weight (O, C, K, K, K) every `stride` voxels; bias
// (O) or undefined. Under autocast in its type. Computed as matrix products if the result has few voxels and many channels.
at::Tensor conv3d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, std::int64_t stride,
                  std::int64_t padding, const Fused& fused);

}  // namespace millrace::nn
