// bf16 copies of fp32 weights, made once per change of the weight.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::kernels {

// Returns the sources in bf16, one after the other along dimension 0. The copy is made again if a source's version counter or
// memory changed since the last call with these sources. It is also made again if a source requires a gradient and a backward
// pass ran. The reason is that ATen's fused optimisers do not raise version counters, but each of their steps follows a backward
// pass. After a source is freed, the next call with new sources frees its copy. Any thread may call this function. The result
// must not be written.
at::Tensor bf16_copy(at::TensorList sources);
// Call this in each backward pass, so that bf16_copy() knows that one ran.
void note_backward() noexcept;

}  // namespace millrace::kernels
