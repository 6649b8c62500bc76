// Functions for 3-D convolutional recipes: each uses the fused kernel or the plain ATen path, as nn/fused.h decides.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "millrace/nn/fused.h"

namespace millrace::nn {

// Operations that run if a switch is off; equal within tolerance:
inline constexpr Switch kFusedActivation{"fused_activation"};  // where, multiply, add and divide one after the other
inline constexpr Switch kFusedPadding{"fused_padding"};        // at::cat, then at::pad; forward equal to the bit
// Padding, then at::conv3d; also runs for volumes that are not channels-last and for strides other than 1.
inline constexpr Switch kDirectConvolution{"direct_convolution"};

// The smooth leaky ramp of kernels/smooth_leaky.h.
at::Tensor smooth_leaky(const at::Tensor& x, const Fused& fused);

// A convolution with kernel 3 over x (N, C, D, H, W) followed, if it is defined, by the channels of `more`, padded circularly by
// one: result (N, out, D/stride, H/stride, W/stride), rounded up. Under autocast in its type.
at::Tensor circular_conv3d(const at::Tensor& x, const at::Tensor& more, const at::Tensor& weight, const at::Tensor& bias,
                           std::int64_t stride, const Fused& fused);

}  // namespace millrace::nn
