// Functions of one number and their derivatives, for a device's threads. g++ and nvcc both compile this file.
#pragma once

#include <c10/macros/Macros.h>

#include <cmath>
#include <cstdint>

#include "millrace/kernels/detail/table.h"

namespace millrace::kernels::detail {

// The formula of kernels/smooth_leaky.h. NaN stays NaN.
struct SmoothLeaky {
  [[nodiscard]] C10_HOST_DEVICE static float clamped(float x) { return x < -1.0F ? -1.0F : x > 1.0F ? 1.0F : x; }
  [[nodiscard]] C10_HOST_DEVICE static float value(float x) {
    const float c = clamped(x), size = ::fabsf(c);
    const float inner = (1.0F - size / 3.0F) * c * c + 2.0F * c + 1.0F / 3.0F;
    return (inner + ::fminf(x + 1.0F, 0.0F) + 3.0F * ::fmaxf(x - 1.0F, 0.0F)) / 3.5F;
  }
  [[nodiscard]] C10_HOST_DEVICE static float slope(float x) {
    const float c = clamped(x);
    return (c * (2.0F - ::fabsf(c)) + 2.0F) / 3.5F;
  }
};

// x sigmoid(1.702 x).
struct QuickGelu {
  [[nodiscard]] C10_HOST_DEVICE static float sigmoid(float x) { return 1.0F / (1.0F + ::expf(-x)); }
  [[nodiscard]] C10_HOST_DEVICE static float value(float x) { return x * sigmoid(1.702F * x); }
  [[nodiscard]] C10_HOST_DEVICE static float slope(float x) {
    const float s = sigmoid(1.702F * x);
    return s * (1.0F + 1.702F * x * (1.0F - s));
  }
};

// Handles one element of PointwiseArgs.
template <class Function, class X>
[[nodiscard]] C10_HOST_DEVICE inline X pointwise_of(X x, const X* gradient, std::int64_t i) {
  const auto at = static_cast<float>(x);
  if (gradient == nullptr) return static_cast<X>(Function::value(at));
  return static_cast<X>(static_cast<float>(gradient[i]) * Function::slope(at));
}

}  // namespace millrace::kernels::detail
