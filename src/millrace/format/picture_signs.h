// What a PNG or JPEG file says beside its pixels that changes how they are taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "millrace/format/pixels.h"

namespace millrace::format {

struct PictureSigns {
  int orientation = 1;                 // of EXIF, else of XMP, 1 to 8: how the stored pixels are to be turned
  bool alpha = false;                  // an alpha channel, or transparency of a palette or of one colour (tRNS)
  int bits = 8;                        // a channel; of a palette's numbers
  std::string_view colour;             // "gray", "RGB", "a palette"; "" where the head does not say
  std::int64_t height = 0, width = 0;  // as stored; 0 where the head does not say
};

// "stored as RGB of 8 bits, with transparency" without the first two words: what inspect says of a picture.
[[nodiscard]] std::string stored_text(const PictureSigns& signs);

// Fills `out` with the file's bytes from `offset`; false when there are fewer.
using ReadAt = std::function<bool(std::uint64_t offset, std::span<std::byte> out)>;

// Looks at the heads of chunks and segments alone. Of what is damaged, or no picture, what stands before the damage.
[[nodiscard]] PictureSigns picture_signs(const ReadAt& read);

// Of a picture whose stored pixels have this size.
[[nodiscard]] PictureSize upright(const PictureSize& stored, int orientation) noexcept;
// Where the upright picture's part stands in the stored one.
[[nodiscard]] PicturePart stored_part(const PicturePart& part, const PictureSize& stored, int orientation) noexcept;
// Turns the pixels of a stored part into those of the upright one, of `part`'s size.
void turn_upright(std::span<const std::byte> stored, const PicturePart& part, int orientation, std::size_t channels,
                  std::span<std::byte> out);

}  // namespace millrace::format
