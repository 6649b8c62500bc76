// Functions for residual autoencoders of volumes: group and instance norms with the following activation, upsampling with the
// following convolution, and separate convolutions. Each uses the fused operation or the plain ATen path, as nn/fused.h decides.
// All take float tensors and are differentiable once in all tensor arguments.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "millrace/nn/fused.h"

namespace millrace::nn {

// The comment beside a switch names the operations that run if the switch is off. Results are equal within tolerance; those of
// kLeanNorms to the bit.
// kFusedGroupNorm: ATen's group norm, then SiLU; ATen's instance norm, then leaky ReLU. A convolution adds its bias itself.
inline constexpr Switch kFusedGroupNorm{"fused_group_norm"};
inline constexpr Switch kLeanNorms{"lean_norms"};                // the norm's result is kept for the convolution's gradient
inline constexpr Switch kPhasedUpsampling{"phased_upsampling"};  // at::upsample_nearest3d, then at::conv3d
inline constexpr Switch kVoxelProducts{"voxel_products"};        // at::conv3d

// Group norm of x (N, C, D, H, W): (x - mean) / sqrt(variance + eps) * weight + bias, then SiLU if `silu`. The C channels are
// divided into `groups` equal groups of neighbours. weight and bias (C) are fp32, and so are statistics and arithmetic. The
// result has x's layout, contiguous or channels last. Its type is x's, or autocast's, which the next convolution needs.
at::Tensor group_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, std::int64_t groups, double eps,
                      bool silu, const Fused& fused);

// group_norm(), then a convolution with weight (O, C, 3, 3, 3), bias (O) and padding 1. Under autocast, the convolution is
// computed in autocast's type.
at::Tensor normed_conv3d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, std::int64_t groups, double eps,
                         bool silu, const at::Tensor& conv_weight, const at::Tensor& conv_bias, const Fused& fused);

// Instance norm without parameters over D, H and W of each row and channel of x (N, C, D, H, W), then a leaky ReLU with `slope`
// below zero. Types and layout as in group_norm().
at::Tensor instance_norm_leaky(const at::Tensor& x, double eps, double slope, const Fused& fused);

// Repeats each voxel of x (N, C, D, H, W) to 2 x 2 x 2, then convolves with weight (O, C, 3, 3, 3), bias (O) and padding 1.
// Result (N, O, 2D, 2H, 2W). Under autocast, the convolution is computed in autocast's type.
at::Tensor upsampled_conv3d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const Fused& fused);

// Pads x (N, C, D, H, W) with `padding` zeros on each side and convolves it with weight (O, C, K, K, K) every `stride` voxels;
// bias is (O) or undefined. Under autocast, the convolution is computed in autocast's type. If the result has few voxels and
// many channels, it is computed as matrix products.
at::Tensor conv3d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, std::int64_t stride,
                  std::int64_t padding, const Fused& fused);

// A volume x (N, C, D, H, W) to which its bias (C), fp32, is not added yet: the value is x + bias. If the bias is undefined, the
// value is x. On a GPU the library adds a convolution's bias in a pass over the whole result, and sums the bias's gradient in
// another pass. A group norm that follows adds the bias without an extra pass.
struct Biased {
  at::Tensor x, bias;
};
// x + bias, in the type of x.
[[nodiscard]] at::Tensor whole(const Biased& x);
// True if the two convolutions below leave out the bias for an input like x, because the group norm on x's device adds the bias.
[[nodiscard]] bool leaves_out_biases(const at::Tensor& x, const Fused& fused);
// conv3d() and upsampled_conv3d(), which may leave out the bias.
Biased biased_conv3d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, std::int64_t stride,
                     std::int64_t padding, const Fused& fused);
Biased biased_upsampled_conv3d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const Fused& fused);
// x + bias with a plane of zeros behind each axis: (N, C, D + 1, H + 1, W + 1).
at::Tensor zeros_behind(const Biased& x, const Fused& fused);

struct Branched {
  at::Tensor normed;
  Biased x;  // the norm's input, for operations other than the norm
};
// group_norm() of x. Use the result's `x` instead of the argument in other operations: a device's norm then adds their gradient
// to its own without an extra pass.
Branched branched_group_norm(const Biased& x, const at::Tensor& weight, const at::Tensor& bias, std::int64_t groups, double eps,
                             bool silu, const Fused& fused);

}  // namespace millrace::nn
