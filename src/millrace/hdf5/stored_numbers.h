// Converts real numbers of any type that a file may hold to the type used for computing.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "millrace/base/field.h"
#include "millrace/base/half.h"

namespace millrace {

[[nodiscard]] inline bool is_real(DType dtype) {
  return dtype != DType::boolean && dtype != DType::bf16 && dtype != DType::c64 && dtype != DType::c128;
}

namespace detail {

template <class From, class To>
bool copied(std::span<const std::byte> bytes, std::span<To> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    From value{};
    std::memcpy(&value, bytes.data() + i * sizeof(From), sizeof(From));
    if constexpr (std::is_floating_point_v<From> && !std::is_floating_point_v<To>) {
      if (!(std::abs(value) < 9e15)) return false;
    }
    values[i] = static_cast<To>(value);  // NOLINT(bugprone-signed-char-misuse): a number of a file, no character
  }
  return true;
}

}  // namespace detail

// Converts the numbers in `bytes` to `values`, which has room for exactly as many. Returns false unless is_real(dtype). For an
// integral To also returns false if a number is not finite or too large.
template <class To>
[[nodiscard]] bool convert_numbers(DType dtype, std::span<const std::byte> bytes, std::span<To> values) {
  switch (dtype) {
    case DType::u8:
      return detail::copied<std::uint8_t>(bytes, values);
    case DType::i8:
      return detail::copied<std::int8_t>(bytes, values);
    case DType::i16:
      return detail::copied<std::int16_t>(bytes, values);
    case DType::u16:
      return detail::copied<std::uint16_t>(bytes, values);
    case DType::i32:
      return detail::copied<std::int32_t>(bytes, values);
    case DType::u32:
      return detail::copied<std::uint32_t>(bytes, values);
    case DType::i64:
      return detail::copied<std::int64_t>(bytes, values);
    case DType::u64:
      return detail::copied<std::uint64_t>(bytes, values);
    case DType::f32:
      return detail::copied<float>(bytes, values);
    case DType::f64:
      return detail::copied<double>(bytes, values);
    case DType::f16:
      for (std::size_t i = 0; i < values.size(); ++i) {
        std::uint16_t half = 0;
        std::memcpy(&half, bytes.data() + i * sizeof half, sizeof half);
        const float value = of_half(half);
        if (!std::is_floating_point_v<To> && !std::isfinite(value)) return false;
        values[i] = static_cast<To>(value);
      }
      return true;
    default:
      return false;
  }
}

}  // namespace millrace
