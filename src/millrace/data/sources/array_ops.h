// Plain loops over contiguous arrays, for pictures and volumes of any dtype.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "millrace/base/field.h"
#include "millrace/base/philox.h"

namespace millrace::data::detail {

// An array, seen as `outer` blocks. A block has `length` units, and a unit has `unit` bytes. Operations work along the middle
// axis, which counts the units of a block.
struct AxisView {
  std::size_t outer = 1;
  std::size_t length = 1;
  std::size_t unit = 1;
};

// Returns the view of an array with elements of `element_bytes` bytes along axis number `axis`, counted from the front.
[[nodiscard]] AxisView axis_of(const Shape& shape, std::size_t axis, std::size_t element_bytes);

// Writes the units of each block in reverse order. `from` may equal `to`, but they must not overlap otherwise.
void reverse_axis(const AxisView& view, const std::byte* from, std::byte* to);

// Moves the units of each block right by `places`, which is less than `length`; units at the end move to the front. `from` and
// `to` must not overlap.
void roll_axis(const AxisView& view, std::size_t places, const std::byte* from, std::byte* to);

struct Window {
  // A window along an axis with `whole` elements: `size` elements from `begin` on; `begin` may be negative.
  struct Axis {
    std::int64_t whole = 0;
    std::int64_t begin = 0;
    std::int64_t size = 0;
  };

  std::int64_t outer = 1;                // number of consecutive arrays, all of which are cut in the same way
  std::span<const Axis> axes;            // a window for each axis; at least one
  bool reflects = false;                 // true: elements outside the array are its mirror image; false: they are `fill`
  std::span<const std::byte> fill = {};  // the bytes of one element outside the array
};

// Copies the window. With `reflects` the window may extend at most whole - 1 elements beyond each end of the array. `from` and
// `to` must not overlap.
void copy_window(const Window& window, const std::byte* from, std::byte* to);

// Returns (value / 255 - mean) / deviation for each value of a byte.
[[nodiscard]] std::array<float, 256> normalised_bytes(float mean, float deviation);

// Computes to[i] = from[i] + deviation * a normal random number. `from` may equal `to`.
void add_normal(const float* from, std::size_t count, float deviation, Philox random, float* to);

}  // namespace millrace::data::detail
