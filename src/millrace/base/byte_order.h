// Swaps the bytes of numbers that were written on a machine of the other byte order.
#pragma once

#include <cstddef>
#include <span>

#include "millrace/base/field.h"

namespace millrace {

// Returns the size in bytes of one number of an element. An element of a complex dtype consists of two numbers, any other
// element of one.
[[nodiscard]] std::size_t number_size(DType dtype) noexcept;
// Swaps the bytes of each number in place; `bytes` must hold whole elements.
void swap_bytes(DType dtype, std::span<std::byte> bytes) noexcept;

}  // namespace millrace
