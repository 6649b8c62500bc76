#include "millrace/device/detail/turned_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

namespace millrace::device::detail {
namespace {

using Sizes = std::vector<std::int64_t>;
constexpr std::int64_t kLevel2 = std::int64_t{2} << 20U;

struct Volume {
  Sizes input;
  std::int64_t outputs;
  Sizes kernel = {3, 3, 3}, padding = {1, 1, 1}, stride = {1, 1, 1}, dilation = {1, 1, 1};
  bool transposed = false;
  std::int64_t groups = 1;
};

bool is_held(const Volume& volume, std::int64_t level2_bytes = kLevel2) {
  Sizes weight = {volume.outputs, volume.input[1] / volume.groups};
  if (volume.transposed) weight = {volume.input[1], volume.outputs / volume.groups};
  weight.insert(weight.end(), volume.kernel.begin(), volume.kernel.end());
  const Sizes zeros = {0, 0, 0};
  return rows_may_overrun({.format = at::kBFloat16,
                           .transposed = volume.transposed,
                           .input = volume.input,
                           .weight = weight,
                           .stride = volume.stride,
                           .padding = volume.padding,
                           .dilation = volume.dilation,
                           .output_padding = zeros,
                           .groups = volume.groups,
                           .isa = OnednnIsa::amx,
                           .level2_bytes = level2_bytes});
}

// A volume whose result has two planes fewer, as in a network without padding along the depth.
Volume slab(std::int64_t channels, std::int64_t height, std::int64_t width, std::int64_t outputs = 20) {
  return {{1, channels, 3, height, width}, outputs, {3, 3, 3}, {0, 1, 1}};
}

// The heights and widths at which the fault begins. They were measured on a Xeon with AMX and 2 MiB of level 2 cache.
TEST(TurnedRows, BordersAreWhereTheyWereSeen) {
  for (std::int64_t height = 8; height <= 200; ++height) EXPECT_EQ(is_held(slab(32, height, 65)), height >= 59) << height;
  for (std::int64_t width = 4; width <= 300; ++width) EXPECT_EQ(is_held(slab(32, 64, width)), width >= 63) << width;
  for (std::int64_t channels = 1; channels <= 48; ++channels) EXPECT_EQ(is_held(slab(channels, 64, 64)), channels >= 17);
  for (std::int64_t planes = 1; planes <= 20; ++planes) {
    EXPECT_EQ(is_held({{1, 32, planes, 128, 65}, 20}), planes < 8) << planes << ": 1 to 6 are wrong with one thread, 8 is right";
    EXPECT_TRUE(is_held({{2, 16, planes, 128, 64}, 16}) || planes > 8)
        << planes << ": 1 to 8 fail with as many threads as samples";
  }
}

TEST(TurnedRows, WhatWasSeenToFailIsHeld) {
  const Sizes zero = {0, 0, 0};
  for (const Volume& volume : std::vector<Volume>{slab(64, 64, 64, 32),
                                                  slab(64, 64, 64, 64),
                                                  slab(128, 64, 64, 128),
                                                  slab(64, 128, 64, 64),
                                                  {{1, 8, 1, 512, 128}, 20},
                                                  {{2, 1, 3, 1026, 3}, 1},
                                                  {{2, 2, 14, 1026, 6}, 8},
                                                  {{1, 32, 3, 128, 64}, 20, {3, 3, 1}, {1, 1, 0}},
                                                  {{2, 32, 4, 128, 128}, 32},
                                                  {{2, 16, 8, 256, 64}, 16},
                                                  {{4, 16, 12, 512, 12}, 16},
                                                  {{1, 32, 3, 256, 129}, 20, {3, 3, 3}, {1, 1, 1}, {2, 2, 2}},
                                                  {{1, 32, 1, 128, 65}, 20, {1, 1, 1}, zero},
                                                  {{1, 32, 1, 128, 65}, 20, {5, 5, 5}, {2, 2, 2}},
                                                  {{1, 64, 1, 128, 65}, 40, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, false, 2},
                                                  {{1, 32, 1, 128, 65}, 20, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, true},
                                                  {{1, 32, 2, 128, 64}, 20, {3, 3, 3}, {1, 1, 1}, {1, 2, 2}, {1, 1, 1}, true}})
    EXPECT_TRUE(is_held(volume)) << at::IntArrayRef(volume.input) << " to " << volume.outputs;
}

TEST(TurnedRows, OrdinaryVolumesAreLeftAlone) {
  for (const Volume& volume : std::vector<Volume>{{{1, 16, 20, 32, 33}, 20},
                                                  slab(16, 32, 33),
                                                  {{2, 24, 6, 32, 32}, 32},
                                                  {{1, 32, 32, 128, 128}, 32},
                                                  {{1, 64, 16, 64, 64}, 64},
                                                  {{1, 64, 64, 64, 64}, 64},
                                                  {{1, 128, 64, 64, 64}, 128},
                                                  {{2, 16, 24, 64, 64}, 16},
                                                  {{1, 32, 48, 48, 48}, 32}})
    EXPECT_FALSE(is_held(volume)) << at::IntArrayRef(volume.input) << " to " << volume.outputs;
}

TEST(TurnedRows, AnUnknownCacheIsAnyThatItMayBe) {
  EXPECT_FALSE(is_held(slab(16, 40, 40)));
  EXPECT_TRUE(is_held(slab(16, 40, 40), std::int64_t{512} << 10U));
  EXPECT_TRUE(is_held(slab(16, 40, 40), 0));
  EXPECT_TRUE(is_held({{1, 32, 7, 128, 65}, 20}, 0));
}

// How the library divides its work: `in` and `out` parts along the channels, `others` along samples and planes.
struct Division {
  std::int64_t in, out, others;
};

std::int64_t up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Columns of a transposed row of the gradient: the narrowest of the choices with the fewest tiles.
std::int64_t turned(std::int64_t columns) {
  const std::int64_t even = columns + columns % 2;
  if (even <= 32) return even;
  std::vector<std::pair<std::int64_t, std::int64_t>> choices;  // tiles, columns
  for (std::int64_t tile = 2; tile <= 32; tile += 2) {
    for (std::int64_t tiles = up(even, tile); tiles * tile <= up(even, 32) * 32; ++tiles)
      choices.emplace_back(tiles, tiles * tile);
  }
  return std::ranges::min(choices).second;
}

bool overruns(const Volume& v, const Division& division) {
  std::array<std::int64_t, 3> extent{}, out{};
  for (std::size_t i = 0; i < 3; ++i) {
    extent[i] = (v.kernel[i] - 1) * v.dilation[i] + 1;
    out[i] = (v.input[i + 2] + 2 * v.padding[i] - extent[i]) / v.stride[i] + 1;
  }
  const std::int64_t reached = (out[2] - 1) * v.stride[2] + extent[2];
  const std::int64_t in_row = 64 * up(up(v.input[1], 16), division.in) * up(up(reached, v.stride[2]), 32) * 32 * v.stride[2];
  const std::int64_t out_row = 64 * up(up(v.outputs, 16), division.out) * turned(out[2]);
  const auto part = [](std::int64_t size, std::int64_t kernel, std::int64_t in, std::int64_t both) {
    const double room = (0.6 * static_cast<double>(kLevel2) - static_cast<double>(kernel * in)) / static_cast<double>(both);
    return up(size, up(size, static_cast<std::int64_t>(std::floor(std::max(1.0, room)))));
  };
  const std::int64_t rows = part(out[1], v.kernel[1], in_row, in_row + out_row);
  if (rows >= out[1]) return false;
  const std::int64_t in_plane = in_row * v.input[2];
  const std::int64_t planes =
      std::min(part(out[0], v.kernel[0], in_plane, in_plane + out_row * out[0]), up(v.input[0] * out[0], division.others));
  const std::int64_t in_planes = std::min(v.input[2], (planes - 1) * v.stride[0] + extent[0]);
  const std::int64_t in_rows =
      std::min(v.input[3], v.stride[1] * std::min(v.input[3], (rows - 1) * std::min(v.kernel[1], v.stride[1]) + extent[1]));
  const std::int64_t in_end = std::min(v.input[3], (out[1] - 1) * v.stride[1] + extent[1] - v.padding[1]);
  return out[1] > (out[0] - planes + 1) * rows || in_end > (v.input[2] - in_planes + 1) * in_rows;
}

Volume drawn(std::mt19937& random) {
  const auto between = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  Volume volume{{between(1, 4), between(1, 140)}, between(1, 140)};
  const std::array<std::int64_t, 3> largest = {24, between(0, 1) == 0 ? 140 : 1100, between(0, 1) == 0 ? 140 : 24};
  for (std::size_t i = 0; i < 3; ++i) {
    volume.kernel[i] = between(1, 5);
    volume.padding[i] = between(0, volume.kernel[i] / 2);
    volume.stride[i] = between(0, 2) == 0 ? between(1, 3) : 1;
    volume.dilation[i] = volume.stride[i] == 1 && between(0, 3) == 0 ? 2 : 1;
    const std::int64_t extent = (volume.kernel[i] - 1) * volume.dilation[i] + 1;
    volume.input.push_back(std::max<std::int64_t>(1, between(extent - 2 * volume.padding[i], largest[i])));
  }
  return volume;
}

// Compares the rule, which uses only sizes, with the blocks and planes of every possible division of the work among threads.
TEST(TurnedRows, NoDivisionOfTheWorkIsMissed) {
  std::mt19937 random(36);
  int faulty = 0, held = 0, cases = 0;
  for (int i = 0; i < 6000; ++i) {
    const Volume volume = drawn(random);
    bool fails = false;
    for (std::int64_t in = 1; in <= std::max<std::int64_t>(1, up(volume.input[1], 16) / 2); ++in) {
      for (std::int64_t out = 1; out <= up(up(volume.outputs, 16), 2); ++out) {
        for (const std::int64_t others : {1, 2, 3, 4, 8, 1000}) fails = fails || overruns(volume, {in, out, others});
      }
    }
    ++cases;
    faulty += fails ? 1 : 0;
    held += is_held(volume) ? 1 : 0;
    if (fails) {
      ASSERT_TRUE(is_held(volume)) << at::IntArrayRef(volume.input) << " to " << volume.outputs << " by "
                                   << at::IntArrayRef(volume.kernel);
    }
  }
  EXPECT_GT(faulty, cases / 20);
  EXPECT_LT(held - faulty, cases / 10) << "the rule guards little that no division makes fail: " << held << ", " << faulty;
}

}  // namespace
}  // namespace millrace::device::detail
