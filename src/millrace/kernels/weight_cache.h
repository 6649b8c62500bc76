// bf16 copies of fp32 weights, made once per change of the weight.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::kernels {

// The sources in bf16, one after the other along dimension 0. Remade when a source's version counter or memory changed since the
// last call with these sources, or, where a source requires a gradient, a backward pass ran: ATen's fused optimisers do not move
// version counters, but no optimiser steps without a backward pass before it. Dropped when a source is gone. Safe to call from
// any thread. The result must not be written.
at::Tensor bf16_copy(at::TensorList sources);
// To be called in each backward pass.
void note_backward() noexcept;

}  // namespace millrace::kernels
