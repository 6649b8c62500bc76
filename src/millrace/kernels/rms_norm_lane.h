// The arithmetic of an RMS norm over channels followed by SiLU, for a device's threads. g++ and nvcc both compile this file.
#pragma once

#include <c10/macros/Macros.h>

#include <cmath>

#include "millrace/kernels/detail/table.h"

namespace millrace::kernels::detail {

[[nodiscard]] C10_HOST_DEVICE inline float rms_rate(float squares, float count, float epsilon) {
  return 1.0F / ::sqrtf(squares / count + epsilon);
}

// y = silu(h) with h = x * rate.
[[nodiscard]] C10_HOST_DEVICE inline float silu_of(float h) { return h / (1.0F + ::expf(-h)); }

// The gradient of h; `upstream` is the gradient of y.
[[nodiscard]] C10_HOST_DEVICE inline float silu_gradient(float upstream, float h) {
  const float s = 1.0F / (1.0F + ::expf(-h));
  return upstream * s * (1.0F + h * (1.0F - s));
}

// The gradient of x. `of_h` is the gradient of h; `product` is the mean of of_h * h over the channels.
[[nodiscard]] C10_HOST_DEVICE inline float rms_gradient(float of_h, float h, float rate, float product) {
  return rate * (of_h - h * product);
}

// A channel's summand in the sum over the channels of a position. Forward: x^2. Backward: h times the gradient of h.
[[nodiscard]] C10_HOST_DEVICE inline float rms_addend(const RmsNorm& a, float x, float gradient, float rate) {
  if (a.gradient == nullptr) return x * x;
  const float h = x * rate;
  return silu_gradient(gradient, h) * h;
}

[[nodiscard]] C10_HOST_DEVICE inline float rms_result(const RmsNorm& a, float x, float gradient, float rate, float product) {
  const float h = x * rate;
  if (a.gradient == nullptr) return silu_of(h);
  return rms_gradient(silu_gradient(gradient, h), h, rate, product);
}

}  // namespace millrace::kernels::detail
