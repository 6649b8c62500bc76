#include "millrace/data/files/image_resize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "millrace/base/philox.h"
#include "millrace/data/files/detail/resize_loops.h"
#include "millrace/system/instructions.h"

// tests/interop/formats_test.cpp tests that the values equal Pillow's.
namespace millrace::data {
namespace {

using format::PicturePart;
using format::PictureSize;
using format::Pixels;

std::vector<std::byte> noise(std::int64_t count, std::uint64_t seed) {
  Philox random(seed);
  std::vector<std::byte> bytes(static_cast<std::size_t>(count));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.below(2) == 0 ? random.below(256) : 255 * random.below(2));
  return bytes;
}

std::vector<std::byte> cut(const std::vector<std::byte>& pixels, std::int64_t width, std::int64_t channels,
                           const PicturePart& part) {
  std::vector<std::byte> out;
  for (std::int64_t y = part.top; y < part.top + part.height; ++y) {
    const auto begin = pixels.begin() + (y * width + part.left) * channels;
    out.insert(out.end(), begin, begin + part.width * channels);
  }
  return out;
}

std::vector<std::byte> resized(const PictureSize& from, const std::vector<std::byte>& pixels, Pixels channels,
                               std::int64_t height, std::int64_t width, const PicturePart& part) {
  std::vector<std::byte> out(static_cast<std::size_t>(part.height * part.width) * static_cast<std::size_t>(channels));
  resize_bicubic(from, {0, 0, from.height, from.width}, pixels, channels, height, width, part, out);
  return out;
}

TEST(ImageResize, APartIsThatPartOfTheWhole) {
  for (const Pixels channels : {Pixels::gray, Pixels::rgb}) {
    const auto depth = static_cast<std::int64_t>(channels);
    const PictureSize from{.height = 57, .width = 83};
    const auto pixels = noise(from.height * from.width * depth, 1);
    for (const auto& [height, width] : {std::pair<std::int64_t, std::int64_t>{20, 31}, {57, 83}, {130, 90}, {1, 1}}) {
      const auto whole = resized(from, pixels, channels, height, width, {0, 0, height, width});
      const PicturePart part{.top = height / 3, .left = width / 4, .height = (height + 1) / 2, .width = (width + 1) / 2};
      EXPECT_EQ(resized(from, pixels, channels, height, width, part), cut(whole, width, depth, part)) << height << " x " << width;
      if (height == from.height) {
        EXPECT_EQ(whole, pixels) << "of the same size: as it is";
      }
    }
  }
}

TEST(ImageResize, TheMiddleNeedsOnlyWhatItSees) {
  const PictureSize from{.height = 90, .width = 200};
  const auto pixels = noise(from.height * from.width * 3, 2);
  const ClipCrop crop = clip_crop(from, 32);
  EXPECT_EQ(crop.height, 32);
  EXPECT_EQ(crop.width, 71);
  const PicturePart seen = seen_by(crop, from);
  EXPECT_LT(seen.width, 110);
  std::vector<std::byte> out(32 * 32 * 3);
  resize_bicubic(from, seen, cut(pixels, from.width, 3, seen), Pixels::rgb, crop.height, crop.width, crop.middle, out);
  EXPECT_EQ(out, resized(from, pixels, Pixels::rgb, crop.height, crop.width, crop.middle));
}

TEST(ImageResize, AnEvenImageStaysEvenAndGreyIsOneChannelOfColour) {
  const PictureSize from{.height = 41, .width = 66};
  const std::vector<std::byte> even(41 * 66, std::byte{201});
  const auto out = resized(from, even, Pixels::gray, 17, 90, {0, 0, 17, 90});
  EXPECT_TRUE(std::all_of(out.begin(), out.end(), [](std::byte value) { return value == std::byte{201}; }));
  const auto gray = noise(41 * 66, 3);
  std::vector<std::byte> colour;
  for (const std::byte value : gray) colour.insert(colour.end(), 3, value);
  const auto small = resized(from, gray, Pixels::gray, 17, 23, {0, 0, 17, 23});
  const auto small_colour = resized(from, colour, Pixels::rgb, 17, 23, {0, 0, 17, 23});
  for (std::size_t i = 0; i < small_colour.size(); ++i) ASSERT_EQ(small_colour[i], small[i / 3]);
}

// The weights overshoot in both directions: the loops of all instruction sets must clamp at both ends alike.
TEST(ImageResize, EachSetOfInstructionsGivesTheSameBytes) {
  if (hardware_instructions() < InstructionSet::avx2) GTEST_SKIP() << "this CPU has one set";
  constexpr std::size_t kOld = 37 * 3, kNew = 21, kPitch = 64;
  const auto pixels = noise(static_cast<std::int64_t>(detail::kResizedRows * kOld), 4);
  std::vector<detail::Taps> taps;
  std::vector<std::int32_t> weights;
  Philox random(5);
  for (std::size_t i = 0; i < kNew; ++i) {
    taps.push_back({static_cast<std::int64_t>(random.below(30)), 7});
    for (int k = 0; k < 7; ++k) weights.push_back(static_cast<std::int32_t>(random.below(3U << 20U)) - (3 << 18));
  }
  const auto run = [&](const detail::ResizeLoops& loops) {
    std::vector<std::byte> out(detail::kResizedRows * kPitch), columns(112 * detail::kResizedRows),
        new_columns(64 * detail::kResizedRows), row(40);
    detail::RowWork work;
    work.old_bytes = kOld;
    work.channels = 3;
    work.new_pixels = kNew;
    work.taps = taps.data();
    work.weights = weights.data();
    work.most = 7;
    work.old_columns = columns.data();
    work.new_columns = new_columns.data();
    for (std::size_t i = 0; i < detail::kResizedRows; ++i) {
      work.from[i] = pixels.data() + i * kOld;
      work.to[i] = out.data() + i * kPitch;
    }
    loops.eight_rows(work);
    loops.new_row({.from = out.data(), .pitch = kPitch, .bytes = 40, .weights = weights.data(), .count = 7, .to = row.data()});
    out.insert(out.end(), row.begin(), row.end());
    return out;
  };
  const auto portable = run(detail::portable::loops());
  EXPECT_EQ(portable, run(detail::avx2::loops()));
  EXPECT_NE(std::ranges::count(portable, std::byte{255}), 0);
}

}  // namespace
}  // namespace millrace::data
