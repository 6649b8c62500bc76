#include "millrace/format/picture_signs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "millrace/format/deflate.h"
#include "millrace/format/detail/test_pictures.h"

namespace millrace::format {
namespace {

using namespace std::string_literals;

PictureSigns signs_of(const std::string& file) {
  return picture_signs([&](std::uint64_t offset, std::span<std::byte> out) {
    if (offset > file.size() || out.size() > file.size() - offset) return false;
    std::memcpy(out.data(), file.data() + offset, out.size());
    return true;
  });
}

std::string number(std::uint64_t value, std::size_t bytes, bool little = false) {
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * (bytes - 1 - i)) & 0xFFU);
  if (little) std::reverse(text.begin(), text.end());
  return text;
}

// A TIFF block with one entry.
std::string exif(std::uint64_t orientation, bool little = true, std::uint64_t type = 3, std::uint64_t count = 1,
                 std::uint64_t tag = 0x0112) {
  const auto n = [little](std::uint64_t value, std::size_t bytes) { return number(value, bytes, little); };
  const std::string value = type == 3 || type == 8 ? n(orientation, 2) + n(0, 2) : n(orientation, 4);
  return (little ? "II*\0"s : "MM\0*"s) + n(8, 4) + n(1, 2) + n(tag, 2) + n(type, 2) + n(count, 4) + value + n(0, 4);
}

std::string xmp(const std::string& said) { return "<x:xmpmeta><rdf:Description " + said + "/></x:xmpmeta>"; }

std::string segment(char marker, const std::string& content) {
  return "\xFF"s + marker + number(content.size() + 2, 2) + content;
}
std::string jpeg(const std::string& segments) { return "\xFF\xD8"s + segments + segment('\xDA', "scan") + "\xFF\xD9"s; }
std::string jpeg_exif(const std::string& block) { return segment('\xE1', "Exif\0\0"s + block); }
std::string jpeg_xmp(const std::string& packet) { return segment('\xE1', "http://ns.adobe.com/xap/1.0/\0"s + packet); }

std::string chunk(const std::string& name, const std::string& content) {
  return number(content.size(), 4) + name + content + number(0, 4);
}
std::string png(const std::string& chunks, char depth = 8, char color = 2) {
  const std::string header = number(5, 4) + number(4, 4) + depth + color + "\0\0\0"s;
  return "\x89PNG\r\n\x1A\n"s + chunk("IHDR", header) + chunks + chunk("IDAT", "data") + chunk("IEND", "");
}

std::string packed(const std::string& text) {
  const std::vector<std::byte> made = deflate(DeflateFrame::raw, std::as_bytes(std::span(text)));
  return "\x78\x9C"s + std::string(reinterpret_cast<const char*>(made.data()), made.size());
}

TEST(PictureSigns, ExifOrientationOfBothFormatsAndByteOrders) {
  for (std::uint64_t value = 0; value <= 9; ++value) {
    const int expected = value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
    for (const bool little : {true, false}) {
      EXPECT_EQ(signs_of(jpeg(segment('\xE0', "JFIF\0"s) + jpeg_exif(exif(value, little)))).orientation, expected) << value;
      EXPECT_EQ(signs_of(png(chunk("eXIf", exif(value, little)))).orientation, expected) << value;
      EXPECT_EQ(signs_of(png(chunk("eXIf", "Exif\0\0"s + exif(value, little)))).orientation, expected) << value;
    }
  }
  EXPECT_EQ(signs_of(jpeg(jpeg_exif(exif(6, true, 4)))).orientation, 6);
  EXPECT_EQ(signs_of(jpeg(jpeg_exif(exif(6, true, 1)))).orientation, 1) << "bytes are no number";
  EXPECT_EQ(signs_of(jpeg(jpeg_exif(exif(6, true, 3, 2)))).orientation, 6) << "of two numbers the first, as in Pillow";
  EXPECT_EQ(signs_of(jpeg(jpeg_exif(exif(0x40C00000, true, 11)))).orientation, 6) << "a float";
  EXPECT_EQ(signs_of(jpeg(jpeg_exif(exif(0x40D00000, true, 11)))).orientation, 1) << "6.5";
  EXPECT_EQ(signs_of(jpeg(jpeg_exif(exif(8, true, 4, 2)))).orientation, 1) << "elsewhere in the block stands no such number";
  EXPECT_EQ(signs_of(jpeg(jpeg_exif(exif(1 << 30, true, 4, 1 << 30)))).orientation, 1) << "behind its end";
  EXPECT_EQ(signs_of(jpeg(jpeg_exif(exif(6, true, 3, 0)))).orientation, 1);
  EXPECT_EQ(signs_of(jpeg(jpeg_exif(exif(6, true, 3, 1, 0x0113)))).orientation, 1) << "of another entry";
  EXPECT_EQ(signs_of("\xFF\xD8\xFF"s + jpeg_exif(exif(6)).substr(1)).orientation, 6) << "cut off behind it";
  EXPECT_EQ(signs_of(jpeg(segment('\xDA', "scan") + jpeg_exif(exif(6)))).orientation, 1) << "behind the pixels' begin";
}

TEST(PictureSigns, XmpSaysItWhereExifDoesNot) {
  const std::string attribute = xmp("tiff:Orientation=\"6\""), element = "<tiff:Orientation>8</tiff:Orientation>";
  EXPECT_EQ(signs_of(jpeg(jpeg_xmp(attribute))).orientation, 6);
  EXPECT_EQ(signs_of(jpeg(jpeg_xmp(element))).orientation, 8);
  EXPECT_EQ(signs_of(jpeg(jpeg_xmp(xmp("tiff:Orientation='6'")))).orientation, 1) << "as in Pillow";
  EXPECT_EQ(signs_of(jpeg(jpeg_xmp(xmp("tiff:Orientation=\"9\"")))).orientation, 1);
  EXPECT_EQ(signs_of(jpeg(jpeg_xmp(attribute) + jpeg_exif(exif(3)))).orientation, 3) << "EXIF goes first, wherever it stands";
  EXPECT_EQ(signs_of(jpeg(jpeg_xmp(attribute) + jpeg_exif(exif(1)))).orientation, 1);
  EXPECT_EQ(signs_of(jpeg(jpeg_exif(exif(3, true, 3, 1, 0x0113)) + jpeg_xmp(attribute))).orientation, 6);
  const std::string keyword = "XML:com.adobe.xmp\0"s;
  EXPECT_EQ(signs_of(png(chunk("iTXt", keyword + "\0\0\0\0"s + attribute))).orientation, 6);
  EXPECT_EQ(signs_of(png(chunk("iTXt", keyword + "\1\0en\0\0"s + packed(attribute)))).orientation, 6);
  EXPECT_EQ(signs_of(png(chunk("iTXt", keyword + "\1\0\0\0"s + "no stream"))).orientation, 1);
  EXPECT_EQ(signs_of(png(chunk("iTXt", "Comment\0"s + "\0\0\0\0"s + attribute))).orientation, 1);
  EXPECT_EQ(signs_of(png(chunk("tEXt", keyword + element))).orientation, 8);
}

TEST(PictureSigns, ExifInTextAsImageMagickWritesIt) {
  std::string digits;
  for (const char c : "Exif\0\0"s + exif(7)) {
    digits += "0123456789abcdef"[static_cast<unsigned char>(c) >> 4U];
    digits += "0123456789abcdef"[static_cast<unsigned char>(c) & 15U];
    if (digits.size() % 73 == 72) digits += '\n';
  }
  const std::string text = "\nexif\n      32\n" + digits + '\n', keyword = "Raw profile type exif\0"s;
  EXPECT_EQ(signs_of(png(chunk("zTXt", keyword + "\0"s + packed(text)))).orientation, 7);
  EXPECT_EQ(signs_of(png(chunk("zTXt", keyword + "\0"s + packed(text)) + chunk("eXIf", exif(2)))).orientation, 2);
  EXPECT_EQ(signs_of(png(chunk("zTXt", keyword + "\0"s + packed("\nexif\n 3\nxyz\n")))).orientation, 1);
}

TEST(PictureSigns, TransparencyAndDepth) {
  const auto alpha = [](const std::string& file) { return signs_of(file).alpha; };
  EXPECT_FALSE(alpha(png("", 8, 2)));
  EXPECT_TRUE(alpha(png("", 8, 4)));
  EXPECT_TRUE(alpha(png("", 8, 6)));
  EXPECT_TRUE(alpha(png(chunk("tRNS", "\0\1"s), 8, 0)));
  EXPECT_EQ(signs_of(png("", 16, 0)).bits, 16);
  EXPECT_EQ(signs_of(png("", 8, 0)).bits, 8);
  EXPECT_FALSE(alpha(jpeg("")));
}

TEST(PictureSigns, WhatIsCutOffSaysWhatStandsBefore) {
  const std::string keyword = "XML:com.adobe.xmp\0"s;
  for (const std::string& whole :
       {png(chunk("eXIf", exif(6)) + chunk("iTXt", keyword + "\1\0\0\0"s + packed(xmp("tiff:Orientation=\"6\"")))),
        jpeg(jpeg_exif(exif(6)) + jpeg_xmp(xmp("tiff:Orientation=\"6\"")))}) {
    for (std::size_t bytes = 0; bytes <= whole.size(); ++bytes) {
      const int found = signs_of(whole.substr(0, bytes)).orientation;
      EXPECT_TRUE(found == 1 || found == 6) << bytes;
      if (bytes > whole.size() - 8) {
        EXPECT_EQ(found, 6) << bytes;
      }
    }
    for (std::size_t at = 8; at < whole.size(); ++at) {  // these include lengths that are far too large
      std::string damaged = whole;
      damaged[at] = '\xFF';
      (void)signs_of(damaged);
    }
  }
}

// The position of pixel (row, column) of the upright picture in the stored picture of height x width.
std::pair<std::int64_t, std::int64_t> stored_place(int orientation, std::int64_t y, std::int64_t x, std::int64_t height,
                                                   std::int64_t width) {
  switch (orientation) {
    case 2:
      return {y, width - 1 - x};
    case 3:
      return {height - 1 - y, width - 1 - x};
    case 4:
      return {height - 1 - y, x};
    case 5:
      return {x, y};
    case 6:
      return {height - 1 - x, y};
    case 7:
      return {height - 1 - x, width - 1 - y};
    case 8:
      return {x, width - 1 - y};
    default:
      return {y, x};
  }
}

TEST(Upright, EachPartOfEachTurnIsCutFromItsPlace) {
  const PictureSize stored{.height = 5, .width = 7, .stored = Pixels::rgb};
  const std::vector<std::byte> pixels = detail::picture(stored, 1);
  const auto at = [&](const std::vector<std::byte>& from, std::int64_t width, std::int64_t y, std::int64_t x) {
    const auto first = from.begin() + (y * width + x) * 3;
    return std::vector<std::byte>(first, first + 3);
  };
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const PictureSize size = upright(stored, orientation);
    EXPECT_EQ(size.height, orientation < 5 ? 5 : 7);
    EXPECT_EQ(size.width, orientation < 5 ? 7 : 5);
    for (const PicturePart& part :
         {PicturePart{0, 0, size.height, size.width}, PicturePart{1, 2, 3, 2}, PicturePart{3, 0, 1, 4}}) {
      const PicturePart from = stored_part(part, stored, orientation);
      ASSERT_TRUE(lies_in(from, stored));
      std::vector<std::byte> cut;
      for (std::int64_t y = 0; y < from.height; ++y) {
        const auto row = pixels.begin() + ((from.top + y) * stored.width + from.left) * 3;
        cut.insert(cut.end(), row, row + from.width * 3);
      }
      std::vector<std::byte> turned(cut.size());
      turn_upright(cut, part, orientation, 3, turned);
      for (std::int64_t y = 0; y < part.height; ++y) {
        for (std::int64_t x = 0; x < part.width; ++x) {
          const auto [row, column] = stored_place(orientation, part.top + y, part.left + x, stored.height, stored.width);
          EXPECT_EQ(at(turned, part.width, y, x), at(pixels, stored.width, row, column)) << orientation << ": " << y << ' ' << x;
        }
      }
    }
  }
}

}  // namespace
}  // namespace millrace::format
