// Frozen projections with low-rank adapters (Hu et al. 2021, arXiv:2106.09685).
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "millrace/kernels/kernels.h"

namespace millrace::kernels {

// y = W x + bias + scale * B A dropout(x). W is (out, in), bias (out) or undefined, A (rank, in) and B (out, rank) fp32. A and B
// are undefined without an adapter.
struct LoraWeights {
  at::Tensor weight, bias, a, b;
};

// Several projections of x (..., in), fp32 or bf16 on the CPU. Their results stand side by side in the last dimension. Either all
// projections have a bias or no projection has. All adapters together cost two products: dropout(x) by all A, whose result is
// narrow, and that result by all B. x is kept for the backward pass once, and only if an adapter or a weight needs it; the
// dropout is drawn again. A weight's gradient is computed only if it is required. Weights of x's type that are adjacent in memory
// are used in place. If x is bf16, fp32 weights are used through their cached copy (weight_cache.h). Products use the
// implementations that operation_trial.h selects. Differentiable once.
at::Tensor lora_linear(const at::Tensor& x, const std::vector<LoraWeights>& projections, double scale, const Dropout& site);

}  // namespace millrace::kernels
