// Frozen projections with low-rank adapters on a device other than the CPU. kernels/lora_linear.h has the CPU's.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "millrace/kernels/lora_linear.h"

namespace millrace::kernels {

// True if device_lora_linear() supports x and these projections: no gradient is required of weights and biases.
[[nodiscard]] bool has_device_lora(const at::Tensor& x, const std::vector<LoraWeights>& projections);

// lora_linear() by LibTorch's products in x's type. Weights of x's type that are adjacent in memory are used in place; others are
// copied into one matrix in each call. The adapters' products are added by the library's products, into the result and into the
// gradient of x. Kept for the backward pass: dropout(x) and its narrow product, only if there are adapters. Differentiable once.
[[nodiscard]] at::Tensor device_lora_linear(const at::Tensor& x, const std::vector<LoraWeights>& projections, double scale,
                                            const Dropout& site);

}  // namespace millrace::kernels
