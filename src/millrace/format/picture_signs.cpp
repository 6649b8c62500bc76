#include "millrace/format/picture_signs.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::format {
namespace {

constexpr int kMostParts = 1 << 16;           // chunks or segments that are looked at
constexpr std::uint64_t kMostExif = 1 << 16;  // bytes: what a segment of JPEG holds
constexpr std::uint32_t kOrientation = 0x0112;

// A whole number of the file in its byte order; 0 beyond its end.
std::uint32_t number(std::span<const std::byte> bytes, std::size_t at, std::size_t size, bool little) {
  if (bytes.size() < size || at > bytes.size() - size) return 0;
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < size; ++i)
    value = value << 8U | std::to_integer<std::uint32_t>(bytes[at + (little ? size - 1 - i : i)]);
  return value;
}

// Of an EXIF block, which is a TIFF file. A value that is no single whole number from 1 to 8 turns nothing, as in Pillow.
int orientation_of(std::span<const std::byte> tiff) {
  const std::string_view order(reinterpret_cast<const char*>(tiff.data()), std::min<std::size_t>(2, tiff.size()));
  const bool little = order == "II";
  if (!little && order != "MM") return 1;
  const std::size_t begin = number(tiff, 4, 4, little);
  const std::size_t count = number(tiff, begin, 2, little);
  for (std::size_t entry = 0; entry < count; ++entry) {
    const std::size_t at = begin + 2 + 12 * entry;
    if (at + 12 > tiff.size()) break;
    if (number(tiff, at, 2, little) != kOrientation) continue;
    const std::uint32_t type = number(tiff, at + 2, 2, little);
    const bool is_short = type == 3 || type == 8;
    const bool is_long = type == 4 || type == 9;
    if ((!is_short && !is_long) || number(tiff, at + 4, 4, little) != 1) return 1;
    const std::uint32_t value = number(tiff, at + 8, is_short ? 2 : 4, little);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

std::vector<std::byte> block(const ReadAt& read, std::uint64_t offset, std::uint64_t bytes) {
  std::vector<std::byte> content(std::min(bytes, kMostExif));
  if (!read(offset, content)) content.clear();
  return content;
}

// Whether a marker is one of those that begin a picture's data: SOF0 to SOF15 but DHT, JPG and DAC.
bool begins_frame(unsigned marker) {
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

void look_at_jpeg(const ReadAt& read, PictureSigns& signs) {
  constexpr std::string_view kExif("Exif\0\0", 6);
  std::uint64_t at = 2;
  bool has_exif = false;
  std::array<std::byte, 4> head{};
  for (int part = 0; part < kMostParts && read(at, head) && head[0] == std::byte{0xFF}; ++part) {
    const auto marker = std::to_integer<unsigned>(head[1]);
    if (marker == 0xFF) {  // padding
      ++at;
      continue;
    }
    if (marker == 0xDA || marker == 0xD9) return;
    const std::uint64_t length = number(head, 2, 2, false);
    if (marker == 0xE1 && length > 2 + kExif.size()) {
      const std::vector<std::byte> content = block(read, at + 4, length - 2);
      const std::string_view text(reinterpret_cast<const char*>(content.data()), content.size());
      if (text.starts_with(kExif) && !std::exchange(has_exif, true))
        signs.orientation = orientation_of(std::span(content).subspan(kExif.size()));
    }
    if (std::array<std::byte, 6> frame{}; begins_frame(marker) && read(at + 4, frame)) {
      signs.bits = static_cast<int>(number(frame, 0, 1, false));
      signs.height = number(frame, 1, 2, false);
      signs.width = number(frame, 3, 2, false);
      signs.colour = frame[5] == std::byte{1} ? "gray" : frame[5] == std::byte{3} ? "RGB" : "CMYK";
    }
    at += 2 + length;
  }
}

void look_at_png(const ReadAt& read, PictureSigns& signs) {
  constexpr unsigned kGray = 0, kPalette = 3, kGrayAlpha = 4, kColorAlpha = 6;
  std::uint64_t at = 8;
  std::array<std::byte, 8> head{};
  for (int part = 0; part < kMostParts && read(at, head); ++part) {
    const std::uint64_t length = number(head, 0, 4, false);
    const std::string_view name(reinterpret_cast<const char*>(head.data()) + 4, 4);
    if (name == "IEND") return;
    if (std::array<std::byte, 10> header{}; name == "IHDR" && read(at + 8, header)) {
      const auto color = std::to_integer<unsigned>(header[9]);
      signs.width = number(header, 0, 4, false);
      signs.height = number(header, 4, 4, false);
      signs.bits = std::to_integer<int>(header[8]);
      signs.colour = color == kPalette ? "a palette" : color == kGray || color == kGrayAlpha ? "gray" : "RGB";
      signs.alpha = color == kGrayAlpha || color == kColorAlpha;
    }
    if (name == "tRNS") signs.alpha = true;
    if (name == "eXIf") signs.orientation = orientation_of(block(read, at + 8, length));
    at += 12 + length;
  }
}

bool exchanges_axes(int orientation) { return orientation >= 5; }

}  // namespace

PictureSigns picture_signs(const ReadAt& read) {
  PictureSigns signs;
  std::array<std::byte, 8> start{};
  if (!read(0, start)) return signs;
  const std::string_view text(reinterpret_cast<const char*>(start.data()), start.size());
  if (text == std::string_view("\x89PNG\r\n\x1A\n", 8)) look_at_png(read, signs);
  if (text.starts_with("\xFF\xD8\xFF")) look_at_jpeg(read, signs);
  return signs;
}

std::string stored_text(const PictureSigns& signs) {
  return std::string(signs.colour) + " of " + std::to_string(signs.bits) + (signs.bits == 1 ? " bit" : " bits") +
         (signs.alpha ? ", with transparency, which is dropped: colours are taken as they stand" : "") +
         (signs.bits == 16 ? ", of which the upper 8 are taken" : "");
}

PictureSize upright(const PictureSize& stored, int orientation) noexcept {
  if (!exchanges_axes(orientation)) return stored;
  return {.height = stored.width, .width = stored.height, .stored = stored.stored};
}

PicturePart stored_part(const PicturePart& part, const PictureSize& stored, int orientation) noexcept {
  PicturePart to = part;
  if (exchanges_axes(orientation)) to = {.top = part.left, .left = part.top, .height = part.width, .width = part.height};
  const bool from_bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  if (from_bottom) to.top = stored.height - to.top - to.height;
  if (from_right) to.left = stored.width - to.left - to.width;
  return to;
}

void turn_upright(std::span<const std::byte> stored, const PicturePart& part, int orientation, std::size_t channels,
                  std::span<std::byte> out) {
  PictureSize size{.height = part.height, .width = part.width};
  if (exchanges_axes(orientation)) std::swap(size.height, size.width);
  std::byte* to = out.data();
  for (std::int64_t y = 0; y < part.height; ++y) {
    for (std::int64_t x = 0; x < part.width; ++x, to += channels) {
      const PicturePart from = stored_part({.top = y, .left = x, .height = 1, .width = 1}, size, orientation);
      std::memcpy(to, stored.data() + static_cast<std::size_t>(from.top * size.width + from.left) * channels, channels);
    }
  }
}

}  // namespace millrace::format
