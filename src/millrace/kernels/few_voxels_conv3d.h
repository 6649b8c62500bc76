// A 3-D convolution whose result has few voxels and many channels. Such a convolution spends most of its time on reading and
// writing weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace millrace::kernels {

// Pads x (N, C, D, H, W) with `padding` zeros on each side and convolves it with weight (O, C, K, K, K) every `stride` voxels;
// bias is (O) or undefined. Result (N, O, ...) in x's type and layout (contiguous or channels last). weight and bias are fp32;
// `as_x` is the weight in x's type, without a graph. The voxels under the kernel become rows of a matrix. The forward pass and
// the gradients of x and weight are matrix products with the weights in their own layout (product.h). The library instead would
// reorder the weights for each of them, and sum the weight's gradient in a separate copy. Gradients of weight and bias are fp32.
// x and as_x are saved. Differentiable once. Needs has_few_voxels().
at::Tensor few_voxels_conv3d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& as_x, const at::Tensor& bias,
                             std::int64_t stride, std::int64_t padding);
// True if few_voxels_conv3d() supports these tensors. x (perhaps after a cast) must be fp32 or bf16 on the CPU, weight and bias
// must be fp32, and the kernel must be a cube of more than one voxel. Over all samples, the result may have at most as many
// voxels as channels, so that the rows are no larger than the weight. Empty tensors are not supported.
[[nodiscard]] bool has_few_voxels(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, std::int64_t stride,
                                  std::int64_t padding);

}  // namespace millrace::kernels
