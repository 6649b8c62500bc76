// Properties of a PNG or JPEG file that change how its pixels are interpreted.
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
  int orientation = 1;                 // how the stored pixels must be turned: EXIF's number from 1 to 8, else XMP's
  bool alpha = false;                  // the file has an alpha channel, or transparency of a palette or of a single colour (tRNS)
  int bits = 8;                        // bits per channel or, with a palette, per palette index
  std::string_view colour;             // "gray", "RGB", "CMYK" or "a palette"; "" if the head does not say
  std::int64_t height = 0, width = 0;  // as stored; 0 if the head does not say
};

// How inspect describes a picture: "RGB of 8 bits, with transparency".
[[nodiscard]] std::string stored_text(const PictureSigns& signs);

// Fills `out` with the file's bytes from `offset`; false if the file ends earlier.
using ReadAt = std::function<bool(std::uint64_t offset, std::span<std::byte> out)>;

// Reads the heads of chunks and segments, and metadata, but no pixels. For a damaged file, or a file that is not a picture,
// returns the properties found before the damage.
[[nodiscard]] PictureSigns picture_signs(const ReadAt& read);

// Returns the size of the upright picture, from the size of its stored pixels.
[[nodiscard]] PictureSize upright(const PictureSize& stored, int orientation) noexcept;
// Returns the position of a part of the upright picture in the stored picture.
[[nodiscard]] PicturePart stored_part(const PicturePart& part, const PictureSize& stored, int orientation) noexcept;
// Turns the pixels of a stored part upright. `part` is that part in the upright picture; only its size is used.
void turn_upright(std::span<const std::byte> stored, const PicturePart& part, int orientation, std::size_t channels,
                  std::span<std::byte> out);

}  // namespace millrace::format
