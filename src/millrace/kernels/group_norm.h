// Group norm followed by its activation, in one pass for the statistics and one for the result.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace millrace::kernels {

struct GroupNormOptions {
  std::int64_t groups = 1;  // number of groups of channels; as many groups as channels make an instance norm
  double epsilon = 1e-5;
  bool silu = false;   // SiLU follows the norm; otherwise a leaky ReLU
  double slope = 1.0;  // slope of the leaky ReLU below zero
};

// act((x - mean) * rate * weight + bias) for x (N, C, ...). mean and rate = 1 / sqrt(variance + epsilon) belong to a sample's
// group of neighbouring channels. weight and bias (C) are both defined or both undefined. Forward: two passes over x. Backward:
// two passes over x and the gradient, the second from the cache if a group fits into it. x and two numbers for each group are
// saved. Kernels support x in fp32 or bf16 on the CPU, contiguous or channels last, with weight and bias in fp32. They compute
// in fp32, and the result has x's layout. All other tensors use the plain path. Differentiable once.
at::Tensor group_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const GroupNormOptions& options);
// group_norm(), then a convolution with weight (O, C, 3, 3, 3) and bias (O), fp32, with padding 1. `lean`: the convolution's
// input is not kept; the backward pass recomputes it from x and the statistics, with the same bits. convolution_weights()
// computes the weight's gradient.
at::Tensor group_norm_conv3d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                             const GroupNormOptions& options, const at::Tensor& conv_weight, const at::Tensor& conv_bias,
                             bool lean = true);
// group_norm() by ATen's operations; bf16 and fp16 are computed in fp32. The result has x's type.
at::Tensor group_norm_plain(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                            const GroupNormOptions& options);

}  // namespace millrace::kernels
