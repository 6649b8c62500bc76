// The gradient of a convolution's weights, by the library, without the scratch memory that the library takes for a whole volume.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "millrace/kernels/convolution_planes.h"

namespace millrace::kernels {

// Of a convolution of x (N, C, D, H, W) with `weight` (O, C, 3, 3, 3), of x's type, stride 1 and padding 1, whose result had
// `gradient` (N, O, D, H, W). For bf16 the library keeps turned and padded copies of both volumes, which are some times their
// size: above kWholeBytes of x and gradient together it is asked plane by plane of the kernel (convolution_planes.h).
inline constexpr std::int64_t kWholeBytes = std::int64_t{1} << 20U;
ConvolutionWeights convolution_weights(const at::Tensor& x, const at::Tensor& gradient, const at::Tensor& weight,
                                       bool wants_weight, bool wants_bias);

// While one is there, gradients in fp32 are asked for plane by plane as gradients in bf16 are: for a census, by a step in fp32,
// of what a step in bf16 asks the library for. Of all threads.
class CutAsInBf16 {
 public:
  CutAsInBf16() noexcept;
  ~CutAsInBf16();
  CutAsInBf16(const CutAsInBf16&) = delete;
  CutAsInBf16& operator=(const CutAsInBf16&) = delete;
};

}  // namespace millrace::kernels
