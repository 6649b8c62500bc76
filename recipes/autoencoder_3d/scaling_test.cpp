#include "recipes/autoencoder_3d/scaling.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace millrace::recipes::autoencoder_3d {
namespace {

// numpy.percentile(x, [0, 99.5]), computed by sorting all values.
std::pair<double, double> by_sorting(const at::Tensor& x) {
  const at::Tensor flat = x.contiguous().flatten();
  std::vector<float> values(flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel());
  std::sort(values.begin(), values.end());
  const double place = 0.995 * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  const auto low = static_cast<double>(values[below]);
  return {values.front(), low + (static_cast<double>(values[above]) - low) * (place - static_cast<double>(below))};
}

TEST(Scaling, PercentilesAreThoseOfASortedCrop) {
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{2, 1, 16, 16, 16},
                                                 {3, 2, 7, 5, 3},
                                                 {1, 1, 1, 1, 1},
                                                 {1, 1, 1, 1, 2},
                                                 {2, 2, 32, 32, 33},
                                                 {1, 1, 6, 6, 6},
                                                 {1, 1, 1, 1, 201},
                                                 {1, 1, 1, 1, 202}}) {
    for (const at::Tensor& x : {at::randn(shape) * 100, at::rand(shape).mul(4).round()}) {
      const at::Tensor range = range_of(x);
      ASSERT_EQ(range.sizes(), (std::vector<std::int64_t>{shape[0], shape[1], 2}));
      for (std::int64_t b = 0; b < shape[0]; ++b) {
        for (std::int64_t c = 0; c < shape[1]; ++c) {
          const auto [low, high] = by_sorting(x[b][c]);
          EXPECT_EQ(range[b][c][0].item<double>(), low);
          EXPECT_NEAR(range[b][c][1].item<double>(), high, 1e-5 * std::max(1.0, std::abs(high))) << x.sizes();
        }
      }
    }
  }
}

TEST(Scaling, ACropBecomesZeroToOneAndWhatIsBeyondIsCut) {
  const at::Tensor x = at::randn({2, 2, 16, 16, 16}) * 30 - 5;
  const Scaled scaled = scale_to_unit(x, range_of(x));
  EXPECT_EQ(scaled.flat.sum().item<std::int64_t>(), 0);
  EXPECT_EQ(scaled.x.min().item<float>(), 0);
  EXPECT_EQ(scaled.x.max().item<float>(), 1);
  const auto [low, high] = by_sorting(x[1][0]);
  const at::Tensor expected = ((x[1][0].to(at::kDouble) - low) / (high - low)).clamp(0, 1);
  EXPECT_LT((scaled.x[1][0].to(at::kDouble) - expected).abs().max().item<double>(), 1e-6);
  EXPECT_NEAR((scaled.x[0][0] == 1).sum().item<double>(), 0.005 * 4096, 2);
}

TEST(Scaling, FlatCropsBecomeZeroAndAreCounted) {
  at::Tensor x = at::randn({3, 1, 8, 8, 8});
  x[1].fill_(7);
  x[2].zero_();
  x[2][0][3][3][3] = 1000;  // both percentiles are 0, though not all values are equal
  const Scaled scaled = scale_to_unit(x, range_of(x));
  EXPECT_EQ(scaled.flat.sum().item<std::int64_t>(), 2);
  EXPECT_EQ(scaled.x[1].abs().max().item<float>(), 0);
  EXPECT_EQ(scaled.x[2].abs().max().item<float>(), 0);
  EXPECT_GT(scaled.x[0].max().item<float>(), 0);
}

}  // namespace
}  // namespace millrace::recipes::autoencoder_3d
