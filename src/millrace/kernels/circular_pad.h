// Circular padding of volumes and joining of channels. A circular 3-D convolution needs both. Separately each needs a copy;
// here a single copy does both.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::kernels {

// Joins x (N, C, D, H, W) and, if it is defined, `more` (N, C2, D, H, W) along the channels. Pads the result circularly by one
// element on all six sides. The result is (N, C + C2, D + 2, H + 2, W + 2), in x's layout (contiguous, or channels last). Both
// inputs have the same type. A kernel makes one pass forward and one backward; tensors without a kernel use the plain path.
// Differentiable.
at::Tensor circular_pad(const at::Tensor& x, const at::Tensor& more = {});
// circular_pad() by at::cat and at::pad.
at::Tensor circular_pad_plain(const at::Tensor& x, const at::Tensor& more = {});

}  // namespace millrace::kernels
