// Where the elements of circularly padded volumes lie. g++ and nvcc both compile it.
#pragma once

#include <c10/macros/Macros.h>

#include <cstdint>

namespace millrace::kernels::detail {

// A volume as planes of pixels: contiguous tensors have N * C planes of single elements, channels-last ones N planes whose pixels
// are all channels. A pixel of a plain volume is `pixel` consecutive elements; in the padded one, which has one more pixel on
// each side, pixels are `step` elements apart.
struct PaddedVolume {
  std::int64_t samples, planes, depth, height, width, pixel, step;
  std::int64_t padded_first, padded_stride;  // of a sample's first plane; from one sample to the next
  [[nodiscard]] C10_HOST_DEVICE std::int64_t row() const { return width * pixel; }
  [[nodiscard]] C10_HOST_DEVICE std::int64_t padded_row() const { return (width + 2) * step; }
  [[nodiscard]] C10_HOST_DEVICE std::int64_t padded_plane() const { return (depth + 2) * (height + 2) * padded_row(); }
};

[[nodiscard]] C10_HOST_DEVICE inline std::int64_t wrapped(std::int64_t i, std::int64_t size) {
  return i < 0 ? i + size : i >= size ? i - size : i;
}

// The padded positions that show position i of a side of `size`: itself, and one beyond an edge that it touches (two if size is
// 1). Position `number` of times_shown() ones.
[[nodiscard]] C10_HOST_DEVICE inline int times_shown(std::int64_t i, std::int64_t size) {
  return 1 + (i == 0 ? 1 : 0) + (i == size - 1 ? 1 : 0);
}
[[nodiscard]] C10_HOST_DEVICE inline std::int64_t shown_at(std::int64_t i, std::int64_t size, int number) {
  if (number == 0) return i + 1;
  return i == 0 && number == 1 ? size + 1 : 0;
}

// The place of pixel (d, h, w) of a plane of the padded volume, and of the plain one.
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

// For the device's threads: thread i of a launch handles `kElements` neighbours of a pixel, `pieces` such pieces a pixel.
struct PixelPiece {
  std::int64_t plane, d, h, w, element;
};
[[nodiscard]] C10_HOST_DEVICE inline PixelPiece piece_of(std::int64_t i, std::int64_t pieces, int elements, std::int64_t depth,
                                                         std::int64_t height, std::int64_t width) {
  // 32-bit divisions take a fraction of the time of 64-bit ones; launches of more threads are split.
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
