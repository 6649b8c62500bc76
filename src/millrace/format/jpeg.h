// Decodes JPEG pictures (ITU-T T.81), baseline and progressive, gray or colour, with libjpeg-turbo into given memory. Only the
// requested part goes through the inverse transform and the colour conversion, and its pixels equal those of the whole decoded
// picture. CMYK and arithmetic coding are rejected.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "millrace/format/pixels.h"

namespace millrace::format {

[[nodiscard]] bool is_jpeg(std::span<const std::byte> start) noexcept;

// Returns the size of a picture decoded at 1/2, 1/4 or 1/8, rounded up. Decoding at these sizes costs less than at full size.
[[nodiscard]] PictureSize reduced(const PictureSize& size, int reduction) noexcept;
// Returns the largest reduction (1, 2, 4 or 8) that leaves at least `height` rows and `width` columns; 1 if the picture itself
// has fewer.
[[nodiscard]] int largest_reduction(const PictureSize& size, std::int64_t height, std::int64_t width) noexcept;

// A picture whose header has been read. The file's bytes must outlive it. One thread at a time.
class JpegPicture {
 public:
  // `file` holds at least the header; decode() needs all of the file. `file_bytes` is the size of the whole file. Throws
  // DataError if the file is not JPEG, is cut off, or has a size that this many bytes can't hold.
  JpegPicture(PictureFile file, std::uint64_t file_bytes);
  ~JpegPicture();
  JpegPicture(const JpegPicture&) = delete;
  JpegPicture& operator=(const JpegPicture&) = delete;

  [[nodiscard]] const PictureSize& size() const noexcept { return size_; }
  // Decodes `part`, which lies inside the picture reduced by `reduction`. `out` has the part's height * width * channels bytes.
  // A coloured picture is turned to gray by taking its stored luma. May be called once per object. Throws DataError if the file
  // is cut off, or if the data decoded for the part show damage. Damage that still decodes is not noticed, because JPEG has no
  // checksums.
  void decode(Pixels pixels, int reduction, const PicturePart& part, std::span<std::byte> out);

 private:
  struct Decoder;
  PictureFile file_;
  PictureSize size_;
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace millrace::format
