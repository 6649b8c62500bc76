// A PNG or JPEG file, recognised by its content and rotated as its EXIF or XMP orientation says (like Pillow's
// ImageOps.exif_transpose).
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

// An image file read into a buffer that each thread owns: each thread has one Image at a time and alone uses it. DataError if the
// file is neither PNG nor JPEG, or is damaged.
class Image {
 public:
  explicit Image(std::filesystem::path path);

  [[nodiscard]] const PictureSize& size() const noexcept { return size_; }  // size after rotation
  [[nodiscard]] const format::PictureSigns& signs() const noexcept { return signs_; }
  // The largest of 1, 2, 4, 8 by which the image can be reduced while decoding and still has at least `height` rows and `width`
  // columns; 1 for PNG.
  [[nodiscard]] int largest_reduction(std::int64_t height, std::int64_t width) const noexcept;
  // Decodes `part` of the image reduced by `reduction` into `out`: height * width * channels bytes, channels last. Called once
  // per object. DataError if the file is damaged or truncated.
  void decode(Pixels pixels, int reduction, const PicturePart& part, std::span<std::byte> out);

 private:
  void decode_stored(Pixels pixels, int reduction, const PicturePart& part, std::span<std::byte> out);

  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
  PictureSize size_, stored_;
  format::PictureSigns signs_;
  std::unique_ptr<format::JpegPicture> jpeg_;  // null: a PNG
};

// Signs read without decoding. Empty for a file that can't be read: decoding it reports the error.
[[nodiscard]] format::PictureSigns signs_of(const std::filesystem::path& path);

// A summary of the headers of many pictures.
struct PicturesSeen {
  struct Some {
    std::int64_t count = 0;
    std::filesystem::path first;
  };
  std::int64_t all = 0, looked_at = 0;
  Some turned, transparent, deep;  // counts among those looked at
  PictureSize least, greatest;     // after rotation; 0 if no picture has a size
};
// Looks at the headers of at most `most` files, spread over all.
[[nodiscard]] PicturesSeen look_at_pictures(std::span<const std::filesystem::path> files, std::int64_t most);
// "1,050 pictures of 40 to 89 x 41 to 90 pixels (width x height), 12 turned upright as EXIF says, 3 with transparency".
[[nodiscard]] std::string read_as(const PicturesSeen& seen);

}  // namespace millrace::data
