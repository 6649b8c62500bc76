// A 3-D convolution whose result has few voxels and many channels: its weights are most of what it reads and writes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace millrace::kernels {

// x (N, C, D, H, W) with zeros around it, `padding` on each side, meets weight (O, C, K, K, K) every `stride` voxels; bias (O) or
// undefined: (N, O, ...) in x's type and layout (contiguous or channels last). weight and bias are fp32; `as_x` is the weight in
// x's type, without a graph. The voxels under the kernel are the rows of a matrix, and all three passes matrix products with the
// weights as they lie (product.h): the library orders the weights anew for each pass, and sums their gradient beside it.
// Gradients of weight and bias are fp32. Saved are x and both weights. Differentiable once. Needs has_few_voxels.
at::Tensor few_voxels_conv3d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& as_x, const at::Tensor& bias,
                             std::int64_t stride, std::int64_t padding);
// Whether few_voxels_conv3d takes these: x (as it is, or what it is cast to) fp32 or bf16 on the CPU, weight and bias fp32, the
// kernel a cube, and of voxels in the result, over all samples, no more than of its channels, so that the rows are no larger than
// the weight; not of single voxels, and not empty.
[[nodiscard]] bool has_few_voxels(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, std::int64_t stride,
                                  std::int64_t padding);

}  // namespace millrace::kernels
