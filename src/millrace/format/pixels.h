// Types that the codecs of pictures share. Pixels are 8 bits a channel, rows from top to bottom, channels last.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

namespace millrace::format {

enum class Pixels : std::uint8_t { gray = 1, rgb = 3 };  // the value is the number of channels

struct PictureSize {
  std::int64_t height = 0;
  std::int64_t width = 0;
  Pixels stored = Pixels::rgb;  // gray if the file holds no colour
  friend bool operator==(const PictureSize&, const PictureSize&) = default;
};

// Rows [top, top + height) and columns [left, left + width) of a picture.
struct PicturePart {
  std::int64_t top = 0;
  std::int64_t left = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
};

[[nodiscard]] constexpr bool lies_in(const PicturePart& part, const PictureSize& size) noexcept {
  return part.top >= 0 && part.left >= 0 && part.height > 0 && part.width > 0 && part.top <= size.height - part.height &&
         part.left <= size.width - part.width;
}

// A file's bytes and its name for errors.
struct PictureFile {
  std::span<const std::byte> bytes;
  const std::filesystem::path& path;
};

}  // namespace millrace::format
