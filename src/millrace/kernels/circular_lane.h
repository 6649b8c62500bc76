// Positions of elements in circularly padded volumes. g++ and nvcc both compile this file.
#pragma once

#include <c10/macros/Macros.h>

#include <cstdint>

namespace millrace::kernels::detail {

// A tensor as planes of pixels, where a plane is a whole volume (depth, height, width). A contiguous tensor has N * C planes,
// whose pixels are single elements. A channels-last tensor has N planes, whose pixels hold all channels. In the plain tensor a
// pixel is `pixel` consecutive elements, and pixels follow each other. In the padded tensor, whose planes have one more pixel on
// each side, pixels are `step` elements apart.
struct PaddedVolume {
  std::int64_t samples, planes, depth, height, width, pixel, step;
  std::int64_t padded_first, padded_stride;  // elements of the padded tensor before the first sample's first plane; elements
                                             // from one sample to the next
  [[nodiscard]] C10_HOST_DEVICE std::int64_t row() const { return width * pixel; }
  [[nodiscard]] C10_HOST_DEVICE std::int64_t padded_row() const { return (width + 2) * step; }
  [[nodiscard]] C10_HOST_DEVICE std::int64_t padded_plane() const { return (depth + 2) * (height + 2) * padded_row(); }
};

[[nodiscard]] C10_HOST_DEVICE inline std::int64_t wrapped(std::int64_t i, std::int64_t size) {
  return i < 0 ? i + size : i >= size ? i - size : i;
}

// Position i along an axis of length `size` appears times_shown() times in the padded volume: once as itself, and, for each end
// of the axis at which it lies, once more beyond the opposite end (if size is 1, it lies at both ends). shown_at() returns the
// padded position of appearance `number`.
[[nodiscard]] C10_HOST_DEVICE inline int times_shown(std::int64_t i, std::int64_t size) {
  return 1 + (i == 0 ? 1 : 0) + (i == size - 1 ? 1 : 0);
}
[[nodiscard]] C10_HOST_DEVICE inline std::int64_t shown_at(std::int64_t i, std::int64_t size, int number) {
  if (number == 0) return i + 1;
  return i == 0 && number == 1 ? size + 1 : 0;
}

// Index of the first element of pixel (d, h, w) of a plane: padded_place() in the padded volume, plain_place() in the plain one.
[[nodiscard]] C10_HOST_DEVICE inline std::int64_t padded_place(const PaddedVolume& v, std::int64_t plane, std::int64_t d,
                                                               std::int64_t h, std::int64_t w) {
  const auto at = static_cast<std::uint32_t>(plane), of = static_cast<std::uint32_t>(v.planes);
  return static_cast<std::int64_t>(at / of) * v.padded_stride + v.padded_first +
         static_cast<std::int64_t>(at % of) * v.padded_plane() + (d * (v.height + 2) + h) * v.padded_row() + w * v.step;
}
[[nodiscard]] C10_HOST_DEVICE inline std::int64_t plain_place(const PaddedVolume& v, std::int64_t plane, std::int64_t d,
                                                              std::int64_t h, std::int64_t w) {
  return ((plane * v.depth + d) * v.height + h) * v.row() + w * v.pixel;
}

// The elements that thread i of a launch handles: `elements` neighbours inside a pixel. Each pixel has `pieces` such pieces.
struct PixelPiece {
  std::int64_t plane, d, h, w, element;
};
[[nodiscard]] C10_HOST_DEVICE inline PixelPiece piece_of(std::int64_t i, std::int64_t pieces, int elements, std::int64_t depth,
                                                         std::int64_t height, std::int64_t width) {
  // Divides 32-bit numbers, which takes a fraction of the time of 64-bit divisions. A launch with too many threads for 32 bits
  // is split.
  auto rest = static_cast<std::uint32_t>(i);
  const auto next = [&rest](std::int64_t size) {
    const auto by = static_cast<std::uint32_t>(size), digit = rest % by;
    rest /= by;
    return static_cast<std::int64_t>(digit);
  };
  PixelPiece piece{};
  piece.element = next(pieces) * elements;
  piece.w = next(width);
  piece.h = next(height);
  piece.d = next(depth);
  piece.plane = static_cast<std::int64_t>(rest);
  return piece;
}

}  // namespace millrace::kernels::detail
