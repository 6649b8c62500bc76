// Computes the gradient of a volume convolution's weights by two-dimensional convolutions.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>

namespace millrace::kernels {

// Settings of a convolution as in ATen: three values for depth, height and width, or one value for all.
struct VolumeConvolution {
  at::IntArrayRef stride, padding, dilation, output_padding;
  bool transposed = false;
  std::int64_t groups = 1;
};

struct ConvolutionWeights {
  at::Tensor weight, bias;  // fp32; undefined if not requested
};

// The gradients of weight and bias of a convolution of x (N, C, D, H, W). `weight` is (O, C / groups, kD, kH, kW) or,
// transposed, (C, O / groups, kD, kH, kW); only its sizes are used. `gradient` is the gradient of the result, (N, O, D', H',
// W'), in x's type. Each plane of the kernel combines planes of both volumes. All planes that one plane of the kernel combines
// become the samples of one two-dimensional convolution, which goes through the dispatcher. The library needs little extra
// memory. Volumes that are not channels-last are copied, one at a time; for several small volumes, the combined planes are
// copied too. Sums over calls are in fp32. Without AVX-512 each pair of planes is a separate call.
[[nodiscard]] ConvolutionWeights weights_by_planes(const at::Tensor& x, const at::Tensor& gradient, const at::Tensor& weight,
                                                   const VolumeConvolution& how, bool wants_weight, bool wants_bias);

}  // namespace millrace::kernels
