// A 3-D convolution whose result has few voxels and many channels, so that it mostly reads and writes weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace millrace::kernels {

// x (N, C, D, H, W) with `padding` zeros on each side is convolved with weight (O, C, K, K, K) every `stride` voxels; bias (O) or
// undefined: (N, O, ...) in x's type and layout (contiguous or channels last). weight and bias are fp32; `as_x` is the weight in
// x's type, without a graph. The voxels under the kernel are the rows of a matrix, and all three passes are matrix products with
// the weights in their own layout (product.h): the library would reorder the weights for each pass, and sum their gradient in a
// separate copy. Gradients of weight and bias are fp32. x and both weights are saved. Differentiable once. Needs has_few_voxels.
at::Tensor few_voxels_conv3d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& as_x, const at::Tensor& bias,
                             std::int64_t stride, std::int64_t padding);
// Whether few_voxels_conv3d supports these: x (itself or after a cast) fp32 or bf16 on the CPU, weight and bias fp32, the kernel
// a cube, and no more voxels in the result, over all samples, than channels, so that the rows are no larger than the weight; not
// for single voxels, and not empty.
[[nodiscard]] bool has_few_voxels(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, std::int64_t stride,
                                  std::int64_t padding);

}  // namespace millrace::kernels
