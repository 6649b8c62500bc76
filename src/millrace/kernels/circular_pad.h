// Circular padding of volumes and joining of channels: the two copies before a circular 3-D convolution, as one.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::kernels {

// x (N, C, D, H, W) followed, if it is defined, by more (N, C2, D, H, W) along the channels, padded circularly by one element on
// all six sides: result (N, C + C2, D + 2, H + 2, W + 2), in x's layout (contiguous, or channels last). Where a
// kernel supports them: one pass forward and one backward; all other tensors use the plain path. Both inputs have the same type.
// Differentiable.
at::Tensor circular_pad(const at::Tensor& x, const at::Tensor& more = {});
// circular_pad() by at::cat and at::pad.
at::Tensor circular_pad_plain(const at::Tensor& x, const at::Tensor& more = {});

}  // namespace millrace::kernels
