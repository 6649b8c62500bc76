#include "millrace/format/picture_signs.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/format/deflate.h"

namespace millrace::format {
namespace {

constexpr int kMostParts = 1 << 16;               // largest number of chunks or segments read
constexpr std::uint64_t kMostMetadata = 1 << 20;  // largest chunk or segment, in bytes
constexpr std::uint32_t kOrientation = 0x0112;
constexpr std::string_view kExif("Exif\0\0", 6);

std::string_view text_of(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// Returns a whole number in the file's byte order; 0 if the number lies beyond the end.
std::uint32_t number(std::span<const std::byte> bytes, std::size_t at, std::size_t size, bool little) {
  if (bytes.size() < size || at > bytes.size() - size) return 0;
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < size; ++i)
    value = value << 8U | std::to_integer<std::uint32_t>(bytes[at + (little ? size - 1 - i : i)]);
  return value;
}

// Returns the first number of a TIFF entry whose type Pillow accepts as a number; 0 for all other entries.
std::uint32_t value_at(std::span<const std::byte> tiff, std::size_t entry, bool little) {
  constexpr unsigned kShort = 3, kLong = 4, kSignedByte = 6, kSignedShort = 8, kSignedLong = 9, kFloat = 11, kIfd = 13;
  constexpr std::size_t kInPlace = 4;  // the most bytes of a value in the entry itself; a longer value is elsewhere
  const std::uint32_t type = number(tiff, entry + 2, 2, little), count = number(tiff, entry + 4, 4, little);
  const std::size_t size = type == kSignedByte                                                      ? 1
                           : type == kShort || type == kSignedShort                                 ? 2
                           : type == kLong || type == kSignedLong || type == kFloat || type == kIfd ? 4
                                                                                                    : 0;
  if (size == 0 || count == 0) return 0;
  const std::size_t at = count <= kInPlace / size ? entry + 8 : number(tiff, entry + 8, 4, little);
  const std::uint32_t bits = number(tiff, at, size, little);
  if (type != kFloat) return bits;
  const auto value = std::bit_cast<float>(bits);
  return value >= 1 && value <= 8 && value == std::floor(value) ? static_cast<std::uint32_t>(value) : 0;
}

// Returns the orientation in an EXIF block, which is a TIFF file; nullopt if the block has no such entry. A value other than 1
// to 8 counts as 1.
std::optional<int> orientation_of(std::span<const std::byte> tiff) {
  while (text_of(tiff).starts_with(kExif)) tiff = tiff.subspan(kExif.size());
  const std::string_view order = text_of(tiff).substr(0, 2);
  const bool little = order == "II";
  if (!little && order != "MM") return std::nullopt;
  const std::size_t begin = number(tiff, 4, 4, little);
  const std::size_t count = number(tiff, begin, 2, little);
  for (std::size_t entry = 0; entry < count; ++entry) {
    const std::size_t at = begin + 2 + 12 * entry;
    if (at + 12 > tiff.size()) break;
    if (number(tiff, at, 2, little) != kOrientation) continue;
    const std::uint32_t value = value_at(tiff, at, little);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return std::nullopt;
}

// Returns the orientation in an XMP packet: an attribute tiff:Orientation="6", or an element of that name.
std::optional<int> orientation_of_xmp(std::string_view text) {
  constexpr std::string_view kName = "tiff:Orientation";
  for (std::size_t at = text.find(kName); at != std::string_view::npos; at = text.find(kName, at + 1)) {
    std::string_view value = text.substr(at + kName.size());
    if (!value.starts_with("=\"") && !value.starts_with('>')) continue;
    value.remove_prefix(value.front() == '>' ? 1 : 2);
    if (value.empty() || value.front() < '0' || value.front() > '9') continue;
    return value.front() >= '1' && value.front() <= '8' ? value.front() - '0' : 1;
  }
  return std::nullopt;
}

// The orientation found in EXIF and in XMP. EXIF takes precedence, as in Pillow.
struct Orientations {
  std::optional<int> exif, xmp;
  [[nodiscard]] int value() const { return exif.value_or(xmp.value_or(1)); }
};

std::vector<std::byte> block(const ReadAt& read, std::uint64_t offset, std::uint64_t bytes) {
  std::vector<std::byte> content(std::min(bytes, kMostMetadata));
  if (!read(offset, content)) content.clear();
  return content;
}

// Returns true if a marker begins a picture's data: SOF0 to SOF15 except DHT, JPG and DAC.
bool begins_frame(unsigned marker) {
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

void look_at_jpeg(const ReadAt& read, PictureSigns& signs) {
  constexpr std::string_view kXmp("http://ns.adobe.com/xap/1.0/\0", 29);
  Orientations found;
  bool has_exif = false;
  std::uint64_t at = 2;
  std::array<std::byte, 4> head{};
  for (int part = 0; part < kMostParts && read(at, head) && head[0] == std::byte{0xFF}; ++part) {
    const auto marker = std::to_integer<unsigned>(head[1]);
    if (marker == 0xFF) {  // a byte that pads the space between markers
      ++at;
      continue;
    }
    if (marker == 0xDA || marker == 0xD9) break;
    const std::uint64_t length = number(head, 2, 2, false);
    if (marker == 0xE1 && length > 2) {
      const std::vector<std::byte> content = block(read, at + 4, length - 2);
      const std::string_view text = text_of(content);
      if (text.starts_with(kExif) && !std::exchange(has_exif, true)) found.exif = orientation_of(content);
      if (text.starts_with(kXmp)) found.xmp = orientation_of_xmp(text.substr(kXmp.size()));
    }
    if (std::array<std::byte, 6> frame{}; begins_frame(marker) && read(at + 4, frame)) {
      signs.bits = static_cast<int>(number(frame, 0, 1, false));
      signs.height = number(frame, 1, 2, false);
      signs.width = number(frame, 3, 2, false);
      signs.colour = frame[5] == std::byte{1} ? "gray" : frame[5] == std::byte{3} ? "RGB" : "CMYK";
    }
    at += 2 + length;
  }
  signs.orientation = found.value();
}

// Returns the text after the keyword in a PNG text chunk (tEXt, zTXt, iTXt), decompressed up to kMostMetadata bytes; "" if the
// text is damaged.
std::string text_in(std::string_view chunk, std::string_view name) {
  std::string_view rest = chunk.substr(std::min(chunk.size(), chunk.find('\0')));
  bool is_packed = name == "zTXt";
  if (rest.empty()) return "";
  rest.remove_prefix(1);
  if (name == "tEXt") return std::string(rest);
  if (rest.size() < 2) return "";
  if (name == "iTXt") {
    is_packed = rest[0] != 0;
    rest.remove_prefix(2);
    for (int word = 0; word < 2; ++word) {  // skips the language and the translated keyword
      const std::size_t end = rest.find('\0');
      if (end == std::string_view::npos) return "";
      rest.remove_prefix(end + 1);
    }
  } else {
    rest.remove_prefix(1);
  }
  if (!is_packed) return std::string(rest);
  constexpr std::size_t kZlibHead = 2;
  rest.remove_prefix(std::min(rest.size(), kZlibHead));
  std::string text(kMostMetadata, '\0');
  std::size_t written = 0;
  const std::string problem =
      inflate_head(DeflateFrame::raw, std::as_bytes(std::span(rest)), std::as_writable_bytes(std::span(text)), written);
  text.resize(problem.empty() ? written : 0);
  return text;
}

// Decodes an EXIF block as ImageMagick writes it: "\nexif\n    1234\n" and then the block in hexadecimal digits.
std::vector<std::byte> block_of_profile(std::string_view text) {
  for (int line = 0; line < 3; ++line) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + 1);
  }
  std::vector<std::byte> bytes;
  unsigned value = 0;
  bool half = false;
  for (const char c : text) {
    const std::size_t digit = std::string_view("0123456789abcdef0123456789ABCDEF").find(c);
    if (c == '\n' || c == ' ') continue;
    if (digit == std::string_view::npos) return {};
    value = value << 4U | static_cast<unsigned>(digit % 16);
    if (half) bytes.push_back(static_cast<std::byte>(value & 0xFFU));
    half = !half;
  }
  return bytes;
}

void look_at_png(const ReadAt& read, PictureSigns& signs) {
  constexpr unsigned kGray = 0, kPalette = 3, kGrayAlpha = 4, kColorAlpha = 6;
  constexpr std::string_view kXmp("XML:com.adobe.xmp\0", 18), kProfile("Raw profile type exif\0", 22);
  Orientations found;
  std::optional<int> of_profile;
  bool has_exif = false;
  std::uint64_t at = 8;
  std::array<std::byte, 8> head{};
  for (int part = 0; part < kMostParts && read(at, head); ++part) {
    const std::uint64_t length = number(head, 0, 4, false);
    const std::string_view name = text_of(head).substr(4);
    if (name == "IEND") break;
    if (std::array<std::byte, 10> header{}; name == "IHDR" && read(at + 8, header)) {
      const auto color = std::to_integer<unsigned>(header[9]);
      signs.width = number(header, 0, 4, false);
      signs.height = number(header, 4, 4, false);
      signs.bits = std::to_integer<int>(header[8]);
      signs.colour = color == kPalette ? "a palette" : color == kGray || color == kGrayAlpha ? "gray" : "RGB";
      signs.alpha = color == kGrayAlpha || color == kColorAlpha;
    }
    if (name == "tRNS") signs.alpha = true;
    if (name == "eXIf") {
      has_exif = true;
      found.exif = orientation_of(block(read, at + 8, length));
    }
    if (name == "tEXt" || name == "zTXt" || name == "iTXt") {
      const std::vector<std::byte> content = block(read, at + 8, length);
      const std::string_view chunk = text_of(content);
      if (chunk.starts_with(kXmp)) found.xmp = orientation_of_xmp(text_in(chunk, name));
      if (chunk.starts_with(kProfile)) of_profile = orientation_of(block_of_profile(text_in(chunk, name)));
    }
    at += 12 + length;
  }
  if (!has_exif) found.exif = of_profile;
  signs.orientation = found.value();
}

bool exchanges_axes(int orientation) { return orientation >= 5; }

}  // namespace

PictureSigns picture_signs(const ReadAt& read) {
  PictureSigns signs;
  std::array<std::byte, 8> start{};
  if (!read(0, start)) return signs;
  const std::string_view text = text_of(start);
  if (text == std::string_view("\x89PNG\r\n\x1A\n", 8)) look_at_png(read, signs);
  if (text.starts_with("\xFF\xD8\xFF")) look_at_jpeg(read, signs);
  return signs;
}

std::string stored_text(const PictureSigns& signs) {
  return std::string(signs.colour) + " of " + std::to_string(signs.bits) + (signs.bits == 1 ? " bit" : " bits") +
         (signs.bits == 16 ? ", of which the upper 8 are used" : "") +
         (signs.alpha ? ", with transparency, which is dropped: colours are kept unchanged" : "");
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
