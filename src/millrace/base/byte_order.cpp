#include "millrace/base/byte_order.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace millrace {
namespace {

template <std::size_t kUnit>
void swap_units(std::span<std::byte> bytes) noexcept {
  for (std::size_t at = 0; at + kUnit <= bytes.size(); at += kUnit) {
    std::array<std::byte, kUnit> unit{};
    std::memcpy(unit.data(), bytes.data() + at, kUnit);
    std::reverse(unit.begin(), unit.end());
    std::memcpy(bytes.data() + at, unit.data(), kUnit);
  }
}

}  // namespace

std::size_t number_size(DType dtype) noexcept {
  return dtype == DType::c64 || dtype == DType::c128 ? size_of(dtype) / 2 : size_of(dtype);
}

void swap_bytes(DType dtype, std::span<std::byte> bytes) noexcept {
  switch (number_size(dtype)) {
    case 2:
      return swap_units<2>(bytes);
    case 4:
      return swap_units<4>(bytes);
    case 8:
      return swap_units<8>(bytes);
    default:
      return;
  }
}

}  // namespace millrace
