#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include <jpeglib.h>

#include "millrace/base/error.h"
#include "millrace/base/philox.h"
#include "millrace/format/deflate.h"
#include "millrace/format/detail/test_pictures.h"
#include "millrace/format/jpeg.h"
#include "millrace/format/png.h"
#include "tests/support/refusal.h"

namespace millrace::format {
namespace {

using detail::encode_jpeg;
using detail::picture;
using testing::HasSubstr;

const std::filesystem::path kPath = "pictures/p.x";

std::vector<std::byte> decode(const std::vector<std::byte>& bytes, Pixels pixels) {
  const PictureSize size = png_size({bytes, kPath}, bytes.size());
  std::vector<std::byte> out(static_cast<std::size_t>(size.height * size.width) * static_cast<std::size_t>(pixels));
  decode_png({bytes, kPath}, pixels, out);
  return out;
}

std::vector<std::byte> decode(const std::vector<std::byte>& bytes, Pixels pixels, int reduction, const PicturePart& part) {
  std::vector<std::byte> out(static_cast<std::size_t>(part.height * part.width) * static_cast<std::size_t>(pixels));
  JpegPicture({bytes, kPath}, bytes.size()).decode(pixels, reduction, part, out);
  return out;
}

PictureSize jpeg_size(const std::vector<std::byte>& bytes) { return JpegPicture({bytes, kPath}, bytes.size()).size(); }

std::vector<std::byte> decode_whole(const std::vector<std::byte>& bytes, Pixels pixels = Pixels::rgb, int reduction = 1) {
  const PictureSize size = reduced(jpeg_size(bytes), reduction);
  return decode(bytes, pixels, reduction, {0, 0, size.height, size.width});
}

template <class Do>
std::string refusal_of_picture(const Do& act) {
  return refusal_reason<DataError>(act, kPath.string());
}

TEST(Png, WhatIsWrittenIsReadBack) {
  for (const Pixels pixels : {Pixels::gray, Pixels::rgb}) {
    const PictureSize size{.height = 13, .width = 7, .stored = pixels};
    const std::vector<std::byte> values = picture(size, 1);
    const std::vector<std::byte> bytes = encode_png(size, values);
    EXPECT_TRUE(is_png(bytes));
    EXPECT_EQ(png_size({bytes, kPath}, bytes.size()), size);
    EXPECT_EQ(decode(bytes, pixels), values);
  }
}

TEST(Png, GrayOfColourIsLumaAndColourOfGrayRepeatsIt) {
  const std::vector<std::byte> red =
      encode_png({1, 1, Pixels::rgb}, std::vector<std::byte>{std::byte{200}, std::byte{100}, std::byte{50}});
  EXPECT_EQ(decode(red, Pixels::gray),
            std::vector<std::byte>{std::byte{124}});  // (200*19595 + 100*38470 + 50*7471 + 32768) / 65536
  const std::vector<std::byte> gray = encode_png({1, 1, Pixels::gray}, std::vector<std::byte>{std::byte{77}});
  EXPECT_EQ(decode(gray, Pixels::rgb), std::vector<std::byte>(3, std::byte{77}));
}

// A PNG of these chunks, each with the correct CRC.
std::vector<std::byte> png_of(const std::vector<std::pair<std::string, std::string>>& chunks) {
  std::string text("\x89PNG\r\n\x1A\n", 8);
  const auto put = [&](std::uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(value >> shift & 0xFFU);
  };
  for (const auto& [name, data] : chunks) {
    put(static_cast<std::uint32_t>(data.size()));
    text += name + data;
    const std::string covered = name + data;
    put(crc32(std::as_bytes(std::span(covered))));
  }
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

TEST(Png, HostileFilesAreRefusedWithAReason) {
  const std::vector<std::byte> good = encode_png({4, 4, Pixels::rgb}, picture({4, 4, Pixels::rgb}, 2));
  const auto read = [&](const std::vector<std::byte>& bytes) {
    return refusal_of_picture([&] { static_cast<void>(decode(bytes, Pixels::rgb)); });
  };
  const auto ihdr = [](std::uint32_t width, std::uint32_t height, const std::string& rest) {
    std::string text;
    for (const std::uint32_t value : {width, height}) {
      for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(value >> shift & 0xFFU);
    }
    return text + rest;
  };
  const std::string rgb8("\x08\x02\0\0\0", 5);
  EXPECT_EQ(read({}), "not a PNG file: it does not begin with \\x89PNG");
  EXPECT_EQ(read(std::vector<std::byte>(good.begin(), good.begin() + 20)), "the PNG file is cut off: it has only 20 bytes");
  EXPECT_THAT(read(png_of({{"IDAT", std::string(40, 'x')}})), HasSubstr("does not begin with an IHDR chunk"));
  EXPECT_THAT(read(png_of({{"IHDR", ihdr(0, 4, rgb8)}, {"IEND", ""}})), HasSubstr("announces 0 x 4 pixels"));
  EXPECT_THAT(read(png_of({{"IHDR", ihdr(0x7FFFFFFF, 0x7FFFFFFF, rgb8)}, {"IEND", ""}})),
              HasSubstr("45 bytes can't hold so many"));
  EXPECT_THAT(read(png_of({{"IHDR", ihdr(4, 4, rgb8)}, {"IEND", ""}})), HasSubstr("can't be decoded"));
  EXPECT_THAT(read(png_of({{"IHDR", ihdr(4, 4, rgb8)}, {"IDAT", ""}, {"IEND", ""}})), HasSubstr("can't be decoded"));
  EXPECT_THAT(read(png_of({{"IHDR", ihdr(4, 4, rgb8)}, {"IDAT", "nonsense"}, {"IEND", ""}})), HasSubstr("can't be decoded"));
  EXPECT_THAT(read(png_of({{"IHDR", ihdr(4, 4, std::string("\x08\x05\0\0\0", 5))}, {"IDAT", "x"}, {"IEND", ""}})),
              HasSubstr("can't be decoded"));
  EXPECT_THAT(read(png_of({{"IHDR", ihdr(4, 4, rgb8)}, {"XXXX", "x"}, {"IDAT", "x"}, {"IEND", ""}})),
              HasSubstr("can't be decoded"));
  std::vector<std::byte> damaged = good;
  damaged[45] ^= std::byte{1};
  EXPECT_EQ(read(damaged), "PNG chunk \"IDAT\" at byte 33 is damaged: its CRC differs");
  damaged = good;
  damaged[34] ^= std::byte{1};
  EXPECT_THAT(read(damaged), HasSubstr("PNG chunk \"IDAT\" at byte 33 announces "));
  for (std::size_t size = 0; size < good.size(); ++size) {
    ASSERT_NE(read(std::vector<std::byte>(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size))), "accepted") << size;
  }
}

TEST(Png, WrittenWholeOrNotAtAll) {
  const std::filesystem::path path = std::filesystem::temp_directory_path() / ("millrace-" + std::to_string(::getpid()) + ".png");
  const PictureSize size{2, 3, Pixels::gray};
  write_png(Fs::real(), path, size, picture(size, 3));
  const std::string text = Fs::real().read_file(path);
  const auto bytes = std::as_bytes(std::span(text));
  EXPECT_EQ(std::vector<std::byte>(bytes.begin(), bytes.end()), encode_png(size, picture(size, 3)));
  std::filesystem::remove(path);
}

TEST(Jpeg, SizeAndReductionsOfIt) {
  const PictureSize size{.height = 37, .width = 50, .stored = Pixels::rgb};
  const std::vector<std::byte> bytes = encode_jpeg(size, picture(size, 4), {});
  EXPECT_EQ(jpeg_size(bytes), size);
  EXPECT_EQ(reduced(size, 8), (PictureSize{5, 7, Pixels::rgb}));
  EXPECT_EQ(largest_reduction(size, 37, 50), 1);
  EXPECT_EQ(largest_reduction(size, 19, 25), 2);
  EXPECT_EQ(largest_reduction(size, 20, 25), 1);
  EXPECT_EQ(largest_reduction(size, 5, 7), 8);
  EXPECT_EQ(largest_reduction(size, 100, 100), 1);
  for (const int reduction : {1, 2, 4, 8}) EXPECT_NO_THROW(static_cast<void>(decode_whole(bytes, Pixels::gray, reduction)));
}

// Decoding a part must return the same pixels although it skips the rest.
TEST(Jpeg, APartIsThatPartOfTheWhole) {
  const PictureSize size{.height = 61, .width = 83, .stored = Pixels::rgb};
  const std::vector<std::byte> values = picture(size, 5);
  for (const auto& [horizontal, vertical] : {std::pair(1, 1), {2, 1}, {2, 2}, {4, 1}, {1, 2}}) {
    for (const bool progressive : {false, true}) {
      const std::vector<std::byte> bytes =
          encode_jpeg(size, values, {.horizontal = horizontal, .vertical = vertical, .progressive = progressive});
      for (const int reduction : {1, 2}) {
        const PictureSize small = reduced(size, reduction);
        for (const Pixels pixels : {Pixels::rgb, Pixels::gray}) {
          const std::vector<std::byte> whole = decode_whole(bytes, pixels, reduction);
          const auto channels = static_cast<std::int64_t>(pixels);
          Philox random(make_key(6, static_cast<std::uint64_t>(horizontal), static_cast<std::uint64_t>(reduction)));
          for (int trial = 0; trial < 60; ++trial) {
            PicturePart part;
            part.height = 1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(small.height)));
            part.width = 1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(small.width)));
            part.top = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(small.height - part.height + 1)));
            part.left = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(small.width - part.width + 1)));
            std::vector<std::byte> expected;
            for (std::int64_t y = part.top; y < part.top + part.height; ++y) {
              const auto row = whole.begin() + (y * small.width + part.left) * channels;
              expected.insert(expected.end(), row, row + part.width * channels);
            }
            ASSERT_EQ(decode(bytes, pixels, reduction, part), expected)
                << horizontal << 'x' << vertical << " progressive " << progressive << " 1/" << reduction << " channels "
                << channels << " rows " << part.top << '+' << part.height << " columns " << part.left << '+' << part.width;
          }
        }
      }
    }
  }
}

TEST(Jpeg, GrayFilesGiveColourToo) {
  const PictureSize size{.height = 9, .width = 10, .stored = Pixels::gray};
  const std::vector<std::byte> bytes = encode_jpeg(size, picture(size, 7), {});
  EXPECT_EQ(jpeg_size(bytes), size);
  const std::vector<std::byte> gray = decode_whole(bytes, Pixels::gray);
  const std::vector<std::byte> rgb = decode_whole(bytes, Pixels::rgb);
  for (std::size_t i = 0; i < gray.size(); ++i) ASSERT_EQ(rgb[3 * i + i % 3], gray[i]);
}

TEST(Jpeg, EveryTruncationIsRefused) {
  const PictureSize size{.height = 40, .width = 40, .stored = Pixels::rgb};
  for (const bool progressive : {false, true}) {
    const std::vector<std::byte> bytes = encode_jpeg(size, picture(size, 8), {.progressive = progressive});
    for (std::size_t kept = 0; kept < bytes.size(); ++kept) {
      const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(kept));
      ASSERT_NE(refusal_of_picture([&] { static_cast<void>(decode(cut, Pixels::rgb, 1, {0, 0, 8, 8})); }), "accepted") << kept;
    }
    std::vector<std::byte> longer = bytes;
    longer.push_back(std::byte{1});
    EXPECT_EQ(decode(longer, Pixels::rgb, 1, {0, 0, 8, 8}), decode(bytes, Pixels::rgb, 1, {0, 0, 8, 8}));
  }
}

TEST(Jpeg, HostileFilesAreRefusedWithAReason) {
  const PictureSize size{.height = 16, .width = 16, .stored = Pixels::rgb};
  const std::vector<std::byte> good = encode_jpeg(size, picture(size, 9), {});
  const auto read = [&](const std::vector<std::byte>& bytes) {
    return refusal_of_picture([&] { static_cast<void>(decode_whole(bytes)); });
  };
  EXPECT_EQ(read({}), "not a JPEG file: it does not begin with \\xFF\\xD8");
  EXPECT_EQ(read({std::byte{0xFF}, std::byte{0xD8}, std::byte{0xFF}}),
            "the JPEG file can't be decoded: Premature end of JPEG file");
  std::vector<std::byte> vast = good;
  const std::array<std::byte, 2> marker{std::byte{0xFF}, std::byte{0xC0}};
  const auto frame = std::search(vast.begin(), vast.end(), marker.begin(), marker.end());
  ASSERT_NE(frame, vast.end());
  for (int i = 5; i < 9; ++i) frame[i] = std::byte{0xFE};
  EXPECT_EQ(read(vast), "the JPEG file can't be decoded: its header announces 65278 x 65278 pixels, but " +
                            std::to_string(vast.size()) + " bytes can't hold so many");
  const std::vector<std::byte> printer = encode_jpeg(size, std::vector<std::byte>(16 * 16 * 4), {.cmyk = true});
  EXPECT_EQ(read(printer), "the JPEG file can't be decoded: it has the colours of a printer (CMYK)");
  // A file of endless scans: the same progressive scan again and again.
  std::vector<std::byte> scans = encode_jpeg(size, picture(size, 10), {.progressive = true});
  const std::array<std::byte, 2> scan{std::byte{0xFF}, std::byte{0xDA}};
  const auto last = std::find_end(scans.begin(), scans.end(), scan.begin(), scan.end());
  const std::vector<std::byte> again(last, scans.end() - 2);
  for (int i = 0; i < 600; ++i) scans.insert(scans.end() - 2, again.begin(), again.end());
  EXPECT_NE(read(scans), "accepted");
}

}  // namespace
}  // namespace millrace::format
