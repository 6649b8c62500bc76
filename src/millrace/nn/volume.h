// Functions for recipes with 3-D convolutions. Each uses the fused kernel or the plain ATen path, as nn/fused.h decides.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "millrace/nn/fused.h"

namespace millrace::nn {

// The comment beside a switch names the operations that run if the switch is off; results are equal within tolerance.
inline constexpr Switch kFusedActivation{"fused_activation"};  // where, multiply, add and divide one after the other
inline constexpr Switch kFusedPadding{
    "fused_padding"};  // at::cat, then at::pad; both ways give the same bits in the forward pass
// Off: padding, then at::conv3d. Volumes that are not channels-last and strides other than 1 are always computed this way.
inline constexpr Switch kDirectConvolution{"direct_convolution"};

// The smooth leaky ReLU of kernels/smooth_leaky.h.
at::Tensor smooth_leaky(const at::Tensor& x, const Fused& fused);

// Joins x (N, C, D, H, W) and, if it is defined, `more` along the channels, pads the result circularly by one, and convolves it
// with `weight`, kernel 3, every `stride` voxels. Result (N, out, D/stride, H/stride, W/stride), rounded up. Under autocast, the
// convolution is computed in autocast's type.
at::Tensor circular_conv3d(const at::Tensor& x, const at::Tensor& more, const at::Tensor& weight, const at::Tensor& bias,
                           std::int64_t stride, const Fused& fused);

}  // namespace millrace::nn
