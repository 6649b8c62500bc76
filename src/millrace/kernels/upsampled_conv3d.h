// A convolution of volumes that are upsampled to twice their size by nearest neighbours, without a copy of that size.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::kernels {

// Repeats each voxel of x (N, C, D, H, W) to 2 x 2 x 2 and convolves with weight (O, C, 3, 3, 3) and bias (O), with padding 1.
// The result is (N, O, 2D, 2H, 2W). Along each axis two of an output's three taps meet the same voxel. Such taps are added up
// first, which leaves a transposed convolution of x with kernel 4 and stride 2 and 8/27 of the multiplications. The result has
// x's type and layout (contiguous or channels last). weight and bias may have a wider type; their gradients then have that type
// too. x and the weight are saved. Supports any floating type on the CPU. The plain path is used on other devices, or if the bias
// is undefined. Differentiable once.
at::Tensor upsampled_conv3d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);
// True if upsampled_conv3d() uses the transposed convolution for x: x is on the CPU and not empty.
[[nodiscard]] bool transposes_upsampled(const at::Tensor& x);
// upsampled_conv3d() by at::upsample_nearest3d and at::conv3d.
at::Tensor upsampled_conv3d_plain(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace millrace::kernels
