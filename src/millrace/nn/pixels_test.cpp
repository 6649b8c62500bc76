#include "millrace/nn/pixels.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <vector>

#include "millrace/base/error.h"

namespace millrace::nn {
namespace {

TEST(ClipPixels, TakesThreeChannelsOfBytesAndNothingElse) {
  const std::vector<std::int64_t> planes = {2, 3, 4, 5}, none = {0, 3, 4, 5};
  EXPECT_EQ(clip_pixels(at::full({2, 4, 5, 3}, 128, at::kByte)).sizes(), planes);
  EXPECT_EQ(clip_pixels(at::zeros({0, 4, 5, 3}, at::kByte)).sizes(), none);
  // Four channels were read as three, with a shift from pixel to pixel.
  EXPECT_THROW((void)clip_pixels(at::zeros({2, 4, 5, 4}, at::kByte)), DataError);
  EXPECT_THROW((void)clip_pixels(at::zeros({2, 4, 5, 1}, at::kByte)), DataError);
  EXPECT_THROW((void)clip_pixels(at::zeros({4, 3}, at::kByte)), DataError);
  EXPECT_THROW((void)clip_pixels(at::zeros({2, 4, 5, 3}, at::kFloat)), DataError);
}

}  // namespace
}  // namespace millrace::nn
