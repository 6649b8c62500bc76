// Computes the gradient of a convolution's weights with the library, but without the library's scratch memory for a whole
// volume.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "millrace/kernels/convolution_planes.h"

namespace millrace::kernels {

// If x and gradient together have more bytes than this, a bf16 gradient is computed plane by plane.
inline constexpr std::int64_t kWholeBytes = std::int64_t{1} << 20U;
// The gradients of weight and bias of a convolution of x (N, C, D, H, W) with `weight` (O, C, 3, 3, 3), of x's type, stride 1
// and padding 1. `gradient` (N, O, D, H, W) is the gradient of the result. In bf16 the library would keep transposed and padded
// copies of both volumes, which take several times their size. Therefore above kWholeBytes the library is called for one plane
// of the kernel at a time (convolution_planes.h).
ConvolutionWeights convolution_weights(const at::Tensor& x, const at::Tensor& gradient, const at::Tensor& weight,
                                       bool wants_weight, bool wants_bias);

// While such an object exists, fp32 gradients are computed plane by plane as in bf16, in all threads. An fp32 step then makes
// the library calls of a bf16 step, so that these calls can be counted in fp32.
class CutAsInBf16 {
 public:
  CutAsInBf16() noexcept;
  ~CutAsInBf16();
  CutAsInBf16(const CutAsInBf16&) = delete;
  CutAsInBf16& operator=(const CutAsInBf16&) = delete;
};

}  // namespace millrace::kernels
