// Images made smaller or larger, to the bit as Pillow does it, so that a network sees here what it was trained on there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "millrace/format/pixels.h"

namespace millrace::data {

// Resamples an image of 8-bit pixels to `height` x `width` with the bicubic kernel of Keys (1981, a = -1/2), widened by the
// factor where the image shrinks. First along rows, then along columns, with rounding to 8 bits between and weights of 22 bits:
// Pillow's Image.resize(BICUBIC). (From version 13 on Pillow takes columns first where that saves work, as for some images that
// are higher than broad: what is rounded and clipped between the two is then another.) Only `part` of the result is computed and
// written into `out`; `pixels` (channels last) are part `have` of the image, which holds all that it depends on. Any thread.
// InternalError for sizes that do not fit each other.
void resize_bicubic(const format::PictureSize& from, const format::PicturePart& have, std::span<const std::byte> pixels,
                    format::Pixels channels, std::int64_t height, std::int64_t width, const format::PicturePart& part,
                    std::span<std::byte> out);

// The transform in front of CLIP (Radford et al. 2021): the short side is brought to `side`, the long one to the whole number
// below its share, and the middle side x side is taken.
struct ClipCrop {
  std::int64_t height = 0, width = 0;  // of the resized image
  format::PicturePart middle;          // of it
};
[[nodiscard]] ClipCrop clip_crop(const format::PictureSize& from, std::int64_t side);
// Rows and columns of the image that the middle depends on.
[[nodiscard]] format::PicturePart seen_by(const ClipCrop& crop, const format::PictureSize& from);

}  // namespace millrace::data
