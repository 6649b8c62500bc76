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

// An array seen as `outer` blocks of `length` units of `unit` bytes: the operation works along the middle axis.
struct AxisView {
  std::size_t outer = 1;
  std::size_t length = 1;
  std::size_t unit = 1;
};

// The view along axis `axis`, counted from the front, of an array of elements of `element_bytes`.
[[nodiscard]] AxisView axis_of(const Shape& shape, std::size_t axis, std::size_t element_bytes);

// Writes the units of each block in reverse order. `from` may equal `to`; other overlap is not allowed.
void reverse_axis(const AxisView& view, const std::byte* from, std::byte* to);

// Moves the units of each block right by `places` (less than length); those at the end wrap around to the front. No overlap.
void roll_axis(const AxisView& view, std::size_t places, const std::byte* from, std::byte* to);

struct Window {
  // One axis of a window: `size` elements from `begin` on, along an axis of `whole` elements; `begin` may be negative.
  struct Axis {
    std::int64_t whole = 0;
    std::int64_t begin = 0;
    std::int64_t size = 0;
  };

  std::int64_t outer = 1;                // number of consecutive arrays, each cut alike
  std::span<const Axis> axes;            // at least one
  bool reflects = false;                 // false: elements outside the array are `fill`
  std::span<const std::byte> fill = {};  // one element, of the array's element size
};

// Copies the window. If it reflects, begin and size reach at most whole - 1 beyond the array's ends. No overlap.
void copy_window(const Window& window, const std::byte* from, std::byte* to);

// The table of (value / 255 - mean) / deviation for each byte value.
[[nodiscard]] std::array<float, 256> normalised_bytes(float mean, float deviation);

// to[i] = from[i] + deviation * a normal number; `from` may be `to`.
void add_normal(const float* from, std::size_t count, float deviation, Philox random, float* to);

}  // namespace millrace::data::detail
