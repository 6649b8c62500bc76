// A linear layer of GELU's output that is computed again instead of kept.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::kernels {

// linear() (kernels.h) of gelu(x) with tanh's approximation (Hendrycks and Gimpel 2016, arXiv:1606.08415). x (..., in), fp32 or
// bf16 on the CPU; weight (out, in) and bias (out) fp32 leaves, bias may be undefined. x alone is kept for the backward pass.
// Differentiable once.
at::Tensor gelu_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace millrace::kernels
