// The parameters of a dropout site, to be used with the map from element to random bit (detail/dropout_map.h), and its scalar
// reference.
#pragma once

#include <ATen/core/Tensor.h>

#include <cmath>
#include <cstdint>

#include "millrace/kernels/detail/dropout_map.h"
#include "millrace/kernels/kernels.h"

namespace millrace::kernels {

// Elements whose 16 bits are below this are dropped: 0 keeps all, 65536 drops all.
[[nodiscard]] inline std::uint32_t dropout_threshold(double p) noexcept {
  return p >= 1.0 ? 65536U : p <= 0.0 ? 0U : static_cast<std::uint32_t>(std::lround(p * 65536.0));
}

// The factor of kept elements.
[[nodiscard]] inline float dropout_scale(double p) noexcept { return p >= 1.0 ? 0.0F : static_cast<float>(1.0 / (1.0 - p)); }

// The keep mask of a whole site as a bool tensor on the CPU, from the scalar reference, with which tests compare every kernel.
at::Tensor dropout_mask_reference(at::IntArrayRef sizes, const Dropout& dropout);

}  // namespace millrace::kernels
