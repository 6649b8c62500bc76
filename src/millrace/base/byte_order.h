// Numbers from machines of the other byte order.
#pragma once

#include <cstddef>
#include <span>

#include "millrace/base/field.h"

namespace millrace {

// Bytes of the numbers an element is made of: a complex one has two.
[[nodiscard]] std::size_t number_size(DType dtype) noexcept;
// Swaps the bytes of each number in place; `bytes` are whole elements.
void swap_bytes(DType dtype, std::span<std::byte> bytes) noexcept;

}  // namespace millrace
