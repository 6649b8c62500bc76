// Resizes images with the same bits as Pillow, so that a network sees the same pixels as in its original training.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "millrace/format/pixels.h"

namespace millrace::data {

// Resamples an image of 8-bit pixels to `height` x `width` as Pillow's Image.resize(BICUBIC) does. The kernel is that of Keys
// (1981, a = -1/2), widened by the factor if the image shrinks. Rows are resampled first, then columns, with rounding to 8 bits
// in between; weights have 22 bits. (From version 13 on, Pillow does the columns first if that saves work, for example for some
// images that are taller than wide. The rounding and clipping in between then differ.) Only `part` of the result is computed and
// written to `out`. `pixels` (channels last) holds the part `have` of the image, which must contain all pixels that `part`
// depends on. May be called by any thread. Throws InternalError if sizes do not match.
void resize_bicubic(const format::PictureSize& from, const format::PicturePart& have, std::span<const std::byte> pixels,
                    format::Pixels channels, std::int64_t height, std::int64_t width, const format::PicturePart& part,
                    std::span<std::byte> out);

// The preprocessing of CLIP (Radford et al. 2021): the short side is resized to `side` and the long side in proportion (rounded
// down), then the central square of side x side is cut out.
struct ClipCrop {
  std::int64_t height = 0, width = 0;  // size of the resized image
  format::PicturePart middle;          // the central square of the resized image
};
[[nodiscard]] ClipCrop clip_crop(const format::PictureSize& from, std::int64_t side);
// Returns the rows and columns of the old image on which the central square depends.
[[nodiscard]] format::PicturePart seen_by(const ClipCrop& crop, const format::PictureSize& from);

}  // namespace millrace::data
