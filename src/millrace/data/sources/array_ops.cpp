#include "millrace/data/sources/array_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

namespace millrace::data::detail {
namespace {

// Calls work(c), where c() is the number of bytes of a unit. For the usual numbers of bytes, c() is a compile-time constant, so
// that a memcpy becomes one load and one store.
template <class Work>
void with_unit(std::size_t unit, Work work) {
  switch (unit) {
    case 1:
      return work([] { return std::size_t{1}; });
    case 2:
      return work([] { return std::size_t{2}; });
    case 3:
      return work([] { return std::size_t{3}; });
    case 4:
      return work([] { return std::size_t{4}; });
    case 8:
      return work([] { return std::size_t{8}; });
    case 16:
      return work([] { return std::size_t{16}; });
    default:
      return work([unit] { return unit; });
  }
}

// Returns the index in the array for index `at` in the window; -1 if that is outside the array.
std::int64_t place_in(const Window::Axis& axis, bool reflects, std::int64_t at) noexcept {
  std::int64_t place = axis.begin + at;
  if (place >= 0 && place < axis.whole) return place;
  if (!reflects) return -1;
  return place < 0 ? -place : 2 * (axis.whole - 1) - place;
}

void fill_with(std::span<const std::byte> fill, std::int64_t count, std::byte* to) {
  with_unit(fill.size(), [&](auto unit) {
    for (std::int64_t i = 0; i < count; ++i) std::memcpy(to + static_cast<std::size_t>(i) * unit(), fill.data(), unit());
  });
}

// Writes a row along the last axis. The part inside the array is a single copy.
void copy_row(const Window& window, const std::byte* from, std::byte* to) {
  const Window::Axis& axis = window.axes.back();
  const std::size_t bytes = window.fill.size();
  const std::int64_t left = std::clamp<std::int64_t>(-axis.begin, 0, axis.size);
  const std::int64_t right = std::clamp<std::int64_t>(axis.whole - axis.begin, left, axis.size);
  const auto at = [bytes](auto* memory, std::int64_t place) { return memory + static_cast<std::size_t>(place) * bytes; };
  if (right > left) std::memcpy(at(to, left), at(from, axis.begin + left), static_cast<std::size_t>(right - left) * bytes);
  if (!window.reflects) {
    fill_with(window.fill, left, to);
    fill_with(window.fill, axis.size - right, at(to, right));
    return;
  }
  for (std::int64_t i = 0; i < left; ++i) std::memcpy(at(to, i), at(from, place_in(axis, true, i)), bytes);
  for (std::int64_t i = right; i < axis.size; ++i) std::memcpy(at(to, i), at(from, place_in(axis, true, i)), bytes);
}

}  // namespace

AxisView axis_of(const Shape& shape, std::size_t axis, std::size_t element_bytes) {
  AxisView view{.outer = 1, .length = static_cast<std::size_t>(shape[axis]), .unit = element_bytes};
  for (std::size_t i = 0; i < axis; ++i) view.outer *= static_cast<std::size_t>(shape[i]);
  for (std::size_t i = axis + 1; i < shape.size(); ++i) view.unit *= static_cast<std::size_t>(shape[i]);
  return view;
}

void reverse_axis(const AxisView& view, const std::byte* from, std::byte* to) {
  const std::size_t block = view.length * view.unit;
  if (block == 0) return;
  with_unit(view.unit, [&](auto unit) {
    for (std::size_t at = 0; at < view.outer * block; at += block) {
      if (from != to) {
        for (std::size_t i = 0; i < view.length; ++i)
          std::memcpy(to + at + (view.length - 1 - i) * unit(), from + at + i * unit(), unit());
        continue;
      }
      std::byte* left = to + at;
      for (std::byte* right = left + block - unit(); left < right; left += unit(), right -= unit())
        std::swap_ranges(left, left + unit(), right);
    }
  });
}

void roll_axis(const AxisView& view, std::size_t places, const std::byte* from, std::byte* to) {
  const std::size_t block = view.length * view.unit;
  const std::size_t head = places * view.unit;
  for (std::size_t at = 0; block > 0 && at < view.outer * block; at += block) {
    std::memcpy(to + at + head, from + at, block - head);
    std::memcpy(to + at, from + at + block - head, head);
  }
}

void copy_window(const Window& window, const std::byte* from, std::byte* to) {
  const std::span<const Window::Axis> upper = window.axes.first(window.axes.size() - 1);
  const Window::Axis& last = window.axes.back();
  const std::size_t row_from = static_cast<std::size_t>(last.whole) * window.fill.size();
  const std::size_t row_to = static_cast<std::size_t>(last.size) * window.fill.size();
  std::int64_t rows = window.outer;
  for (const Window::Axis& axis : upper) rows *= axis.size;
  for (std::int64_t row = 0; row < rows; ++row, to += row_to) {
    std::int64_t rest = row;
    std::int64_t stride = 1;
    std::int64_t source = 0;
    bool inside = true;
    for (std::size_t a = upper.size(); a-- > 0;) {
      const std::int64_t place = place_in(upper[a], window.reflects, rest % upper[a].size);
      rest /= upper[a].size;
      inside = inside && place >= 0;
      source += place * stride;
      stride *= upper[a].whole;
    }
    source += rest * stride;
    if (inside) {
      copy_row(window, from + static_cast<std::size_t>(source) * row_from, to);
    } else {
      fill_with(window.fill, last.size, to);
    }
  }
}

std::array<float, 256> normalised_bytes(float mean, float deviation) {
  std::array<float, 256> table{};
  for (std::size_t value = 0; value < table.size(); ++value)
    table[value] = (static_cast<float>(value) / 255.0F - mean) / deviation;
  return table;
}

void add_normal(const float* from, std::size_t count, float deviation, Philox random, float* to) {
  // Returns uniform numbers that are never 0, because their logarithm is taken.
  const auto uniform = [&random] { return (static_cast<float>(random() >> 8U) + 0.5F) * 0x1p-24F; };
  for (std::size_t i = 0; i < count; i += 2) {
    const float radius = deviation * std::sqrt(-2.0F * std::log(uniform()));
    const float angle = 2.0F * std::numbers::pi_v<float> * uniform();
    to[i] = from[i] + radius * std::cos(angle);
    if (i + 1 < count) to[i + 1] = from[i + 1] + radius * std::sin(angle);
  }
}

}  // namespace millrace::data::detail
