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

// An array as `outer` blocks of `length` units of `unit` bytes: the axis in the middle is the one that is worked on.
struct AxisView {
  std::size_t outer = 1;
  std::size_t length = 1;
  std::size_t unit = 1;
};

// Of axis `axis`, counted from the front, of an array of elements of `element_bytes`.
[[nodiscard]] AxisView axis_of(const Shape& shape, std::size_t axis, std::size_t element_bytes);

// The units of each block in reverse order. `from` may be `to`, nothing else may overlap.
void reverse_axis(const AxisView& view, const std::byte* from, std::byte* to);

// The units of each block moved `places` (less than length) to the right, those at the end to the front. No overlap.
void roll_axis(const AxisView& view, std::size_t places, const std::byte* from, std::byte* to);

// One axis of a window: `size` places from place `begin` of an axis of `whole` on, which may be before its first.
struct WindowAxis {
  std::int64_t whole = 0;
  std::int64_t begin = 0;
  std::int64_t size = 0;
};

struct Window {
  std::int64_t outer = 1;                // arrays one after the other, each cut alike
  std::span<const WindowAxis> axes;      // at least one
  bool reflects = false;                 // else places outside the array are `fill`
  std::span<const std::byte> fill = {};  // of one element; its size is that of the elements
};

// Copies the window. When it reflects, begin and size stay within whole - 1 of the array's ends. No overlap.
void copy_window(const Window& window, const std::byte* from, std::byte* to);

// (value / 255 - mean) / deviation of each byte.
[[nodiscard]] std::array<float, 256> normalised_bytes(float mean, float deviation);

// to[i] = from[i] + deviation * a normal number; `from` may be `to`.
void add_normal(const float* from, std::size_t count, float deviation, Philox random, float* to);

}  // namespace millrace::data::detail
