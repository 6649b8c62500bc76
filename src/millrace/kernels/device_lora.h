// Frozen projections with low-rank adapters on a device other than the CPU. kernels/lora_linear.h has the CPU's.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "millrace/kernels/lora_linear.h"

namespace millrace::kernels {

// True if device_lora_linear() supports x and these projections, whose weights and biases must not require a gradient.
[[nodiscard]] bool has_device_lora(const at::Tensor& x, const std::vector<LoraWeights>& projections);

// lora_linear() by LibTorch's products in x's type. Weights of x's type that are adjacent in memory are used in place; other
// weights are copied into one matrix in each call. The products of the adapters add to the result and to the gradient of x in
// place. If there are adapters, dropout(x) and its narrow product are kept for the backward pass. Differentiable once.
[[nodiscard]] at::Tensor device_lora_linear(const at::Tensor& x, const std::vector<LoraWeights>& projections, double scale,
                                            const Dropout& site);

}  // namespace millrace::kernels
