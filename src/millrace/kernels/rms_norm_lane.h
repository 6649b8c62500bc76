// The arithmetic of an RMS norm over channels with SiLU behind it, for a device's threads. g++ and nvcc both compile it.
#pragma once

#include <c10/macros/Macros.h>

#include <cmath>

namespace millrace::kernels::detail {

[[nodiscard]] C10_HOST_DEVICE inline float rms_rate(float squares, float count, float epsilon) {
  return 1.0F / ::sqrtf(squares / count + epsilon);
}

// y = silu(h) of h = x * rate.
[[nodiscard]] C10_HOST_DEVICE inline float silu_of(float h) { return h / (1.0F + ::expf(-h)); }

// The gradient of h.
[[nodiscard]] C10_HOST_DEVICE inline float silu_gradient(float upstream, float h) {
  const float s = 1.0F / (1.0F + ::expf(-h));
  return upstream * s * (1.0F + h * (1.0F - s));
}

// The gradient of x; `product`: the mean over the channels of the gradient of h times h.
[[nodiscard]] C10_HOST_DEVICE inline float rms_gradient(float of_h, float h, float rate, float product) {
  return rate * (of_h - h * product);
}

}  // namespace millrace::kernels::detail
