// A circular 3-D convolution of few channels: padding, concatenation and convolution in one pass over the volume, without a
// padded copy.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::kernels {

// Convolves x (N, C, D, H, W), followed by the channels of `more` if it is defined, with weight (O, C + C2, 3, 3, 3) and bias
// (O), both fp32. Result (N, O, D, H, W) in x's type, channels last, summed in fp32. Differentiable (once); gradients of weight
// and bias are fp32. Needs has_direct_conv3d().
at::Tensor direct_conv3d(const at::Tensor& x, const at::Tensor& more, const at::Tensor& weight, const at::Tensor& bias);
// True if direct_conv3d() supports these tensors: fp32 or bf16 on the CPU, dense channels-last volumes of the same type and size,
// not empty.
bool has_direct_conv3d(const at::Tensor& x, const at::Tensor& more, const at::Tensor& weight, const at::Tensor& bias);
// direct_conv3d() by circular_pad and at::conv3d.
at::Tensor direct_conv3d_plain(const at::Tensor& x, const at::Tensor& more, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace millrace::kernels
