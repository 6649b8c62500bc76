// Reads a PNG or JPEG file. The format is recognised by the content. The image is rotated as its EXIF or XMP orientation says,
// as ImageOps.exif_transpose of Pillow does.
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

// An image file in a buffer that belongs to the thread. A thread may have only one Image at a time, and only that thread may use
// the Image. Throws DataError if the file is neither PNG nor JPEG, or is damaged.
class Image {
 public:
  explicit Image(std::filesystem::path path);

  [[nodiscard]] const PictureSize& size() const noexcept { return size_; }  // size after rotation
  [[nodiscard]] const format::PictureSigns& signs() const noexcept { return signs_; }
  // Returns the largest of the factors 1, 2, 4 and 8 by which decoding can reduce the image so that at least `height` rows and
  // `width` columns remain. The factor is always 1 for PNG.
  [[nodiscard]] int largest_reduction(std::int64_t height, std::int64_t width) const noexcept;
  // Decodes `part` of the image, reduced by the factor `reduction`, into `out`: height * width * channels bytes, channels last.
  // May be called only once for each Image. Throws DataError if the file is damaged or truncated.
  void decode(Pixels pixels, int reduction, const PicturePart& part, std::span<std::byte> out);

 private:
  void decode_stored(Pixels pixels, int reduction, const PicturePart& part, std::span<std::byte> out);

  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
  PictureSize size_, stored_;
  format::PictureSigns signs_;
  std::unique_ptr<format::JpegPicture> jpeg_;  // null: the image is a PNG
};

// Returns what the file's header says, without decoding the pixels. The result is empty for a file that can't be read, because
// decoding will report the error.
[[nodiscard]] format::PictureSigns signs_of(const std::filesystem::path& path);

// A summary of the headers of many pictures.
struct PicturesSeen {
  struct Some {
    std::int64_t count = 0;
    std::filesystem::path first;
  };
  std::int64_t all = 0, looked_at = 0;
  Some turned, transparent, deep;  // of the pictures looked at: those that are rotated, have transparency, have 16 bits
  PictureSize least, greatest;     // smallest and largest height and width after rotation; 0 if no size could be read
};
// Looks at the headers of at most `most` files, evenly spread over all files.
[[nodiscard]] PicturesSeen look_at_pictures(std::span<const std::filesystem::path> files, std::int64_t most);
// Returns a line such as "1,050 pictures of 40 to 89 x 41 to 90 pixels (width x height), 12 rotated upright as EXIF says, 3 with
// transparency".
[[nodiscard]] std::string read_as(const PicturesSeen& seen);

}  // namespace millrace::data
