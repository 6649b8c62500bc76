// The gradient of a volume convolution's weights by convolutions in two directions.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>

namespace millrace::kernels {

// As ATen takes it: three values for depth, height and width, or one for all.
struct VolumeConvolution {
  at::IntArrayRef stride, padding, dilation, output_padding;
  bool transposed = false;
  std::int64_t groups = 1;
};

struct ConvolutionWeights {
  at::Tensor weight, bias;  // fp32; undefined where not wanted
};

// Of a convolution of x (N, C, D, H, W) with `weight` (O, C / groups, kD, kH, kW) or, transposed, (C, O / groups, kD, kH, kW),
// whose result had `gradient` (N, O, D', H', W'); x and gradient of one type, of `weight` the sizes count alone. For each plane
// of the kernel the planes of both volumes that it brings together are the samples of one convolution in two directions, which
// goes through the dispatcher. Beside what the library takes for that, which is little, it copies: volumes that are not
// channels-last, one at a time; of several small volumes those that a plane of the kernel brings together. Sums of calls are in
// fp32. Without AVX-512 each pair of planes is a call.
[[nodiscard]] ConvolutionWeights weights_by_planes(const at::Tensor& x, const at::Tensor& gradient, const at::Tensor& weight,
                                                   const VolumeConvolution& how, bool wants_weight, bool wants_bias);

}  // namespace millrace::kernels
