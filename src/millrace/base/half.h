// Conversion of 16-bit floating-point numbers (IEEE 754 binary16), as files hold them.
#pragma once

#include <bit>
#include <cstdint>

namespace millrace {

[[nodiscard]] inline float of_half(std::uint16_t half) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16U;
  const std::uint32_t exponent = half >> 10U & 31U;
  const std::uint32_t fraction = half & 1023U;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000U | fraction << 13U);
  if (exponent == 0) return (sign == 0 ? 1.0F : -1.0F) * static_cast<float>(fraction) * 0x1p-24F;
  return std::bit_cast<float>(sign | (exponent + 112U) << 23U | fraction << 13U);
}

}  // namespace millrace
