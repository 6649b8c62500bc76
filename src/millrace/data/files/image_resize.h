// Resizing of images, bit-equal to Pillow's, so that a network sees the same pixels as in its original training.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "millrace/format/pixels.h"

namespace millrace::data {

// Resamples an image of 8-bit pixels to `height` x `width` with the bicubic kernel of Keys (1981, a = -1/2), widened by the
// factor if the image shrinks. Rows first, then columns, with rounding to 8 bits in between and weights of 22 bits: Pillow's
// Image.resize(BICUBIC). (From version 13 on Pillow does columns first if that saves work, as for some images that are taller
// than wide; rounding and clipping in between then differ.) Only `part` of the result is computed and written to `out`; `pixels`
// (channels last) is part `have` of the image and must contain all pixels that `part` depends on. Any thread. InternalError for
// sizes that do not match.
void resize_bicubic(const format::PictureSize& from, const format::PicturePart& have, std::span<const std::byte> pixels,
                    format::Pixels channels, std::int64_t height, std::int64_t width, const format::PicturePart& part,
                    std::span<std::byte> out);

// The preprocessing of CLIP (Radford et al. 2021): the short side is resized to `side`, the long side in proportion (rounded
// down), and the central side x side part is taken.
struct ClipCrop {
  std::int64_t height = 0, width = 0;  // of the resized image
  format::PicturePart middle;          // part of the resized image
};
[[nodiscard]] ClipCrop clip_crop(const format::PictureSize& from, std::int64_t side);
// Rows and columns of the image that the middle depends on.
[[nodiscard]] format::PicturePart seen_by(const ClipCrop& crop, const format::PictureSize& from);

}  // namespace millrace::data
