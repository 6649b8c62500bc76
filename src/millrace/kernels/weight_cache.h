// bf16 copies of fp32 weights, made once per change of the weight.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::kernels {

// The sources in bf16, one after the other along dimension 0. The copy is remade if a source's version counter or memory changed
// since the last call with these sources, or if a source requires a gradient and a backward pass ran: ATen's fused optimisers do
// not raise version counters, but each optimiser step follows a backward pass. It is dropped when a source is freed. Safe to call
// from any thread. The result must not be written.
at::Tensor bf16_copy(at::TensorList sources);
// Call it in each backward pass.
void note_backward() noexcept;

}  // namespace millrace::kernels
