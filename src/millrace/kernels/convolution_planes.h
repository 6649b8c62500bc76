// Computes the gradient of a volume convolution's weights by two-dimensional convolutions.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>

namespace millrace::kernels {

// As in ATen: three values for depth, height and width, or one for all.
struct VolumeConvolution {
  at::IntArrayRef stride, padding, dilation, output_padding;
  bool transposed = false;
  std::int64_t groups = 1;
};

struct ConvolutionWeights {
  at::Tensor weight, bias;  // fp32; undefined if not requested
};

// For a convolution of x (N, C, D, H, W) with `weight` (O, C / groups, kD, kH, kW) or, transposed, (C, O / groups, kD, kH, kW),
// whose result has the gradient `gradient` (N, O, D', H', W'); x and gradient have the same type, and only the sizes of `weight`
// are used. For each plane of the kernel, the planes of both volumes that it combines are the samples of one two-dimensional
// convolution, which goes through the dispatcher. Besides the library's memory for that, which is little, it copies: volumes that
// are not channels-last, one at a time; of several small volumes those that a plane of the kernel combines. Sums over calls are
// in fp32. Without AVX-512 each pair of planes is a separate call.
[[nodiscard]] ConvolutionWeights weights_by_planes(const at::Tensor& x, const at::Tensor& gradient, const at::Tensor& weight,
                                                   const VolumeConvolution& how, bool wants_weight, bool wants_bias);

}  // namespace millrace::kernels
