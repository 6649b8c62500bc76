// A linear layer applied to GELU's output. The output is not kept for the backward pass, but computed again.
#pragma once

#include <ATen/core/Tensor.h>

#include "millrace/kernels/gelu_kind.h"

namespace millrace::kernels {

// GELU of this kind. Differentiable, but `quick` only once, because a kernel of Millrace computes it.
at::Tensor gelu(const at::Tensor& x, Gelu kind);

// linear() (kernels.h) of gelu(x, kind). x (..., in) is fp32 or bf16 on the CPU. weight (out, in) and bias (out) are fp32 leaves;
// bias may be undefined. Only x is kept for the backward pass. Differentiable once.
at::Tensor gelu_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, Gelu kind);

}  // namespace millrace::kernels
