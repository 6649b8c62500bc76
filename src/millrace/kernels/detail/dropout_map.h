// Defines which elements dropout keeps at a site (one call of a layer that draws random numbers, core/random.h). This is the
// exact map from element to random bit, with a scalar reference. Every kernel, for any instruction set, thread count and tail,
// draws exactly these bits.
//
//   element i of the site (row-major index), group g = i / 128, position e = i % 128
//   block    philox4x32({c, c >> 32, 0, 0}, key) with c = 16 g + (e % 32) / 2      (16 blocks serve the 128 elements of a group)
//   word     number e / 32 of the block's four
//   half     the word's lower 16 bits for even e, the upper 16 bits for odd e
//   kept     when half >= round(p * 65536)
//
// So 16 blocks computed side by side in 16 vector lanes give the bits of 128 neighbours in order, without any shuffle.
//
// Includes nothing of LibTorch, because compilers of devices read this file too.
#pragma once

#include <cstdint>

#include "millrace/base/philox.h"

namespace millrace::kernels {

inline constexpr std::int64_t kDropoutGroup = 128;

// Block number `block` of a site. Each of its four words decides for two neighbouring elements; these pairs are 32 elements
// apart.
[[nodiscard]] constexpr PhiloxBlock dropout_block(std::uint64_t key, std::uint64_t block) noexcept {
  return philox4x32({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32U), 0, 0}, key);
}

[[nodiscard]] constexpr bool dropout_keeps(std::uint64_t key, std::uint32_t threshold, std::uint64_t element) noexcept {
  const std::uint64_t position = element % 128;
  const std::uint32_t word = dropout_block(key, 16 * (element / 128) + (position % 32) / 2)[position / 32];
  return (position % 2 == 0 ? word & 0xFFFFU : word >> 16U) >= threshold;
}

}  // namespace millrace::kernels
