// Blocks of arrays that are stored in C order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "millrace/hdf5/file.h"

namespace millrace::hdf5::detail {

using Sizes = std::span<const std::int64_t>;

[[nodiscard]] std::int64_t product(Sizes sizes) noexcept;  // 1 if `sizes` is empty; the caller ensures that the product fits
// Returns true if a block of `count` elements per axis is contiguous in an array of `shape`.
[[nodiscard]] bool in_one_piece(Sizes shape, Sizes count) noexcept;
// Index of the element at coordinates `at` in the array.
[[nodiscard]] std::int64_t flat(Sizes shape, Sizes at) noexcept;
// Advances `at` to the next element within `count`, in C order. After the last element returns to the first one and returns
// false.
bool advance(std::span<std::int64_t> at, Sizes count) noexcept;

// The coordinates of a block's first element in an array.
struct Corner {
  Sizes shape;
  Sizes at;
};
// Copies a block of `count` elements per axis, each of `element_bytes`.
void copy_block(const std::byte* from, Corner source, std::byte* to, Corner target, Sizes count,
                std::size_t element_bytes) noexcept;

// The contiguous pieces of a block in an array; each piece has `run` elements. A piece starts at coordinates `at`; advance()
// over the first `axes` axes of `at` moves to the next piece.
struct Runs {
  std::size_t axes = 0;  // number of leading axes; each position along these axes is a piece
  std::int64_t run = 1;  // elements in a piece
};
[[nodiscard]] Runs runs_of(Sizes shape, Sizes count) noexcept;

}  // namespace millrace::hdf5::detail
