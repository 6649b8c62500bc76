// A PNG or JPEG file, told apart by its content, turned as its EXIF or XMP orientation says (as Pillow's ImageOps.exif_transpose
// does).
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "millrace/format/jpeg.h"
#include "millrace/format/picture_signs.h"
#include "millrace/format/pixels.h"

namespace millrace::data {

using format::PicturePart;
using format::PictureSize;
using format::Pixels;

// An image read from disk into memory that each thread keeps: one at a time for each thread, used by that thread.
// DataError: neither PNG nor JPEG, or damaged.
class Image {
 public:
  explicit Image(std::filesystem::path path);

  [[nodiscard]] const PictureSize& size() const noexcept { return size_; }  // upright
  [[nodiscard]] const format::PictureSigns& signs() const noexcept { return signs_; }
  // The largest of 1, 2, 4, 8 by which the image can be decoded smaller and still has so many rows and columns; 1 for PNG.
  [[nodiscard]] int largest_reduction(std::int64_t height, std::int64_t width) const noexcept;
  // Rows and columns of the image reduced by `reduction`, into the caller's memory: height * width * channels bytes, channels
  // last. Once for each object. DataError when the file is damaged or cut off.
  void decode(Pixels pixels, int reduction, const PicturePart& part, std::span<std::byte> out);

 private:
  void decode_stored(Pixels pixels, int reduction, const PicturePart& part, std::span<std::byte> out);

  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
  PictureSize size_, stored_;
  format::PictureSigns signs_;
  std::unique_ptr<format::JpegPicture> jpeg_;  // null: a PNG
};

// Without decoding it. Nothing of a file that can't be read: whoever decodes it says what is wrong.
[[nodiscard]] format::PictureSigns signs_of(const std::filesystem::path& path);

// What many pictures say of themselves.
struct PicturesSeen {
  struct Some {
    std::int64_t count = 0;
    std::filesystem::path first;
  };
  std::int64_t all = 0, looked_at = 0;
  Some turned, transparent, deep;  // of those looked at
  PictureSize least, greatest;     // upright; 0 where no picture says its size
};
// Looks at the heads of `most` of them at most, spread over all.
[[nodiscard]] PicturesSeen look_at_pictures(std::span<const std::filesystem::path> files, std::int64_t most);
// "1,050 pictures of 40 to 89 x 41 to 90 pixels (width x height), 12 turned upright as EXIF says, 3 with transparency".
[[nodiscard]] std::string read_as(const PicturesSeen& seen);

}  // namespace millrace::data
