// Group norm followed by its activation, in one pass for the statistics and one for the result.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace millrace::kernels {

struct GroupNormOptions {
  std::int64_t groups = 1;  // divides the channels; as many as channels: an instance norm
  double epsilon = 1e-5;
  bool silu = false;   // SiLU follows the norm; else a leaky ReLU:
  double slope = 1.0;  // of the leaky ReLU, below zero
};

// act((x - mean) * rate * weight + bias), x (N, C, ...), with mean and rate = 1 / sqrt(variance + epsilon) of a sample's group of
// neighbouring channels; weight and bias (C), both defined or both undefined. Two passes over x forward, two over x and the
// gradient backward, the second from the cache if a group fits into it; saved are x and two numbers for each group. fp32 or bf16
// on the CPU, weight and bias fp32, contiguous or channels last, which the result keeps; fp32 inside. All other tensors use the
// plain path. Differentiable once.
at::Tensor group_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const GroupNormOptions& options);
// group_norm, then a convolution with weight (O, C, 3, 3, 3) and bias (O), fp32, of padding 1. `lean`: the convolution's input is
// not kept but recomputed in the backward pass, from x and the statistics, with the same bits. The weight's gradient is that of
// convolution_weights.
at::Tensor group_norm_conv3d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                             const GroupNormOptions& options, const at::Tensor& conv_weight, const at::Tensor& conv_bias,
                             bool lean = true);
// group_norm() by ATen's operations, bf16 and fp16 in fp32; result in x's type.
at::Tensor group_norm_plain(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                            const GroupNormOptions& options);

}  // namespace millrace::kernels
