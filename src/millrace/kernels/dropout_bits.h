// The parameters of a dropout site for the map from element to random bit (detail/dropout_map.h), and the map's scalar
// reference.
#pragma once

#include <ATen/core/Tensor.h>

#include <cmath>
#include <cstdint>

#include "millrace/kernels/detail/dropout_map.h"
#include "millrace/kernels/kernels.h"

namespace millrace::kernels {

// Returns a threshold: an element is dropped if its 16 random bits are below it. 0 keeps all elements, 65536 drops all.
[[nodiscard]] inline std::uint32_t dropout_threshold(double p) noexcept {
  return p >= 1.0 ? 65536U : p <= 0.0 ? 0U : static_cast<std::uint32_t>(std::lround(p * 65536.0));
}

// The factor that scales kept elements.
[[nodiscard]] inline float dropout_scale(double p) noexcept { return p >= 1.0 ? 0.0F : static_cast<float>(1.0 / (1.0 - p)); }

// The keep mask of a whole site as a bool tensor on the CPU, by the scalar reference. Tests compare every kernel with it.
at::Tensor dropout_mask_reference(at::IntArrayRef sizes, const Dropout& dropout);

}  // namespace millrace::kernels
