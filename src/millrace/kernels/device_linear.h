// A linear layer on a device other than the CPU.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::kernels {

// Whether device_linear() has a kernel for it: x has the type in which it computes.
[[nodiscard]] bool has_device_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// Several linear layers of one input as one product: the results side by side in the last dimension. weights: (out_i, in),
// biases: (out_i). All fit has_device_linear().
[[nodiscard]] at::Tensor device_linear_packed(const at::Tensor& x, at::TensorList weights, at::TensorList biases);

// x W^T + b by LibTorch's products in x's type; weight (out, in) and bias (out) may be fp32. The bias's gradient is summed in
// fp32 by a kernel of ours, which reads the gradient at the memory's speed. Differentiable once.
[[nodiscard]] at::Tensor device_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace millrace::kernels
