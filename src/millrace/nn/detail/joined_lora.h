// Several frozen projections of one input with their adapters, on a device other than the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "millrace/nn/decoder.h"

namespace millrace::nn::detail {

// True if joined_lora() takes these: several projections without bias, whose weights are frozen and have x's type, and with
// adapters for all of them or for none.
[[nodiscard]] bool joins_lora(const at::Tensor& x, const std::vector<LoraProjection>& projections);

// The results of x W_i^T + scale (dropped A_i^T) B_i^T side by side in the last dimension. Each product is written where it
// stands, and the gradients of x and of `dropped` are summed by the products. `dropped` is undefined without adapters.
// Differentiable once.
[[nodiscard]] at::Tensor joined_lora(const at::Tensor& x, const at::Tensor& dropped,
                                     const std::vector<LoraProjection>& projections, double scale);

}  // namespace millrace::nn::detail
