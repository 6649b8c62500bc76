// A linear layer on a device other than the CPU.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::kernels {

// True if device_linear() has a kernel for x and weight, and x has the type in which the layer computes.
[[nodiscard]] bool has_device_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// Several linear layers of one input as one product. Their results stand side by side in the last dimension. weights: (out_i,
// in), biases: (out_i). Each layer needs has_device_linear().
[[nodiscard]] at::Tensor device_linear_packed(const at::Tensor& x, at::TensorList weights, at::TensorList biases);

// x W^T + b by LibTorch's products in x's type; weight (out, in) and bias (out) may be fp32. A kernel of Millrace sums the
// bias's gradient in fp32; its speed is limited only by memory bandwidth. Differentiable once.
[[nodiscard]] at::Tensor device_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace millrace::kernels
