// Frozen projections with low-rank adapters beside them (Hu et al. 2021, arXiv:2106.09685).
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "millrace/kernels/kernels.h"

namespace millrace::kernels {

// y = W x + bias + scale * B A dropped, dropped = dropout(x). W (out, in), bias (out) or undefined, A (rank, in) and B (out,
// rank) fp32, both undefined without an adapter.
struct LoraWeights {
  at::Tensor weight, bias, a, b;
};

// The results of several projections of x (..., in), fp32 or bf16 on the CPU, side by side in the last dimension. Either all have
// a bias or none. All adapters are one narrow product of what dropout leaves of x, and one that adds to the result. x is kept for
// the backward pass once, and only where an adapter or a weight needs it; what is dropped is drawn again. A weight that requires
// no gradient has none computed. Weights of x's type that lie behind one another in memory are multiplied where they lie; fp32
// weights of a bf16 x by their copy (weight_cache.h). Products take the implementations that operation_trial.h says.
// Differentiable once.
at::Tensor lora_linear(const at::Tensor& x, const std::vector<LoraWeights>& projections, double scale, const Dropout& site);

}  // namespace millrace::kernels
