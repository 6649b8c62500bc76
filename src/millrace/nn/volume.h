// What 3-D convolutional recipes call: each function takes the fused kernel or the plain ATen path, by a flag a recipe fills from
// the switchboard.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace millrace::nn {

// true = the fused kernel of kernels/, false = its plain path:
struct VolumePaths {
  bool fused_activation = true;  // where, multiply, add and divide one after the other; tolerance
  bool fused_padding = true;     // at::cat, then at::pad; equal to the bit forward, tolerance backward
  // Channels-last volumes and stride 1 only, where a trial finds it faster; else padding, then at::conv3d. Tolerance.
  bool direct_convolution = true;
};

// The smooth leaky ramp of kernels/smooth_leaky.h.
at::Tensor smooth_leaky(const at::Tensor& x, const VolumePaths& paths);

// A convolution with kernel 3 over x (N, C, D, H, W) and, when defined, the channels of `more` behind it, continued circularly by
// one: result (N, out, D/stride, H/stride, W/stride), rounded up. Under autocast in its type.
at::Tensor circular_conv3d(const at::Tensor& x, const at::Tensor& more, const at::Tensor& weight, const at::Tensor& bias,
                           std::int64_t stride, const VolumePaths& paths);

}  // namespace millrace::nn
