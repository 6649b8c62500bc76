// Which elements a dropout site keeps: the exact map from element to random bit, with a scalar reference. Every kernel, for any
// instruction set, thread count and tail, draws these bits and no others.
//
//   element i of the site (row-major index), group g = i / 128, position e = i % 128
//   block    philox4x32({c, c >> 32, 0, 0}, key) with c = 16 g + (e % 32) / 2      (16 blocks serve the 128 elements of a group)
//   word     number e / 32 of the block's four
//   half     the word's lower 16 bits for even e, the upper 16 bits for odd e
//   kept     when half >= round(p * 65536)
//
// So 16 blocks computed side by side in 16 vector lanes give the bits of 128 neighbours in order, without any shuffle.
#pragma once

#include <ATen/core/Tensor.h>

#include <cmath>
#include <cstdint>

#include "millrace/base/philox.h"
#include "millrace/kernels/kernels.h"

namespace millrace::kernels {

inline constexpr std::int64_t kDropoutGroup = 128;

// Elements whose 16 bits are below this are dropped: 0 keeps all, 65536 none.
[[nodiscard]] inline std::uint32_t dropout_threshold(double p) noexcept {
  return p >= 1.0 ? 65536U : p <= 0.0 ? 0U : static_cast<std::uint32_t>(std::lround(p * 65536.0));
}

// What kept elements are multiplied with.
[[nodiscard]] inline float dropout_scale(double p) noexcept { return p >= 1.0 ? 0.0F : static_cast<float>(1.0 / (1.0 - p)); }

[[nodiscard]] constexpr bool dropout_keeps(std::uint64_t key, std::uint32_t threshold, std::uint64_t element) noexcept {
  const std::uint64_t position = element % 128;
  const std::uint64_t counter = 16 * (element / 128) + (position % 32) / 2;
  const PhiloxBlock block =
      philox4x32({static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32U), 0, 0}, key);
  const std::uint32_t word = block[position / 32];
  return (position % 2 == 0 ? word & 0xFFFFU : word >> 16U) >= threshold;
}

// The keep mask of a whole site as a bool tensor on the CPU, from the scalar reference, which tests hold every kernel against.
at::Tensor dropout_mask_reference(at::IntArrayRef sizes, const Dropout& dropout);

}  // namespace millrace::kernels
