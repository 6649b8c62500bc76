// Volumes that continue on the opposite side, and channels side by side: the two copies before a circular 3-D convolution, as
// one.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::kernels {

// x (N, C, D, H, W) and, when defined, more (N, C2, D, H, W) behind it along the channels, continued by one element on all six
// sides: result (N, C + C2, D + 2, H + 2, W + 2), in x's layout (contiguous, or channels last). fp32 or bf16 on the CPU: one pass
// forward and one backward; everything else takes the plain path. Both inputs have one type. Differentiable.
at::Tensor circular_pad(const at::Tensor& x, const at::Tensor& more = {});
// The same from at::cat and at::pad.
at::Tensor circular_pad_plain(const at::Tensor& x, const at::Tensor& more = {});

}  // namespace millrace::kernels
