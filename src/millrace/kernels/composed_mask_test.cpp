// Tests on the CPU which elements other devices drop. It does so in two ways: by LibTorch's operations on integers, and by the
// code of the devices' kernel with the geometry of its launch.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <vector>

#include "millrace/kernels/detail/dropout_layout.h"
#include "millrace/kernels/detail/test_launch.h"
#include "millrace/kernels/detail/test_support.h"
#include "millrace/kernels/dropout_bits.h"
#include "millrace/kernels/dropout_lane.h"
#include "millrace/kernels/plain.h"

namespace millrace::kernels {
namespace {

constexpr std::uint64_t kMaskKey = 0xFEDCBA9876543210ULL;

// First positions in a stream: at its beginning, inside a group, and where a block's number needs its upper word.
const std::vector<std::int64_t>& firsts() {
  static const std::vector<std::int64_t> all = {0, 1, 77, 128, (std::int64_t{1} << 35) - 3, (std::int64_t{1} << 40) + 131};
  return all;
}

TEST(ComposedMask, KeepsWhatTheReferenceKeeps) {
  for (const std::int64_t n : {0, 1, 7, 127, 128, 129, 1000, 4099}) {
    for (const double p : {0.0, 1e-6, 0.1, 0.5, 0.999, 1.0}) {
      for (const std::int64_t first : firsts()) {
        const Dropout site{.p = p, .key = kMaskKey, .first = first};
        EXPECT_TRUE(equal_bits(composed_mask({n}, site, at::kCPU), dropout_mask_reference({n}, site)))
            << n << " " << p << " " << first;
      }
    }
  }
}

// As in an attention of length 0 for several rows of a larger batch.
TEST(DropoutUnits, OfAWidthOfZeroHaveNoParts) {
  Dropout site{.p = 0.5, .key = kMaskKey};
  site.runs = {{.first = 0, .count = 0}, {.first = 64, .count = 0}};
  const DropoutUnits units(site, 4, 0);
  int parts = 0;
  units.each(0, 4, [&](const detail::Keep&, std::int64_t, std::int64_t) { ++parts; });
  EXPECT_EQ(parts, 0);
}

TEST(ComposedMask, HasTheShapeAndTheRunsOfTheSite) {
  const Dropout site{.p = 0.3, .key = kMaskKey, .first = 5 * 77, .runs = {{5 * 77, 2 * 77}, {0, 77}, {200 * 77, 77}}};
  EXPECT_TRUE(equal_bits(composed_mask({4, 7, 11}, site, at::kCPU), dropout_mask_reference({4, 7, 11}, site)));
}

// Runs all threads of the launches in device/cuda/elementwise.cu one after the other, with a launch for each run.
template <class X, class Out>
at::Tensor by_lanes(const at::Tensor& x, const at::Tensor& residual, const Dropout& site, at::ScalarType type) {
  at::Tensor out = at::empty(x.sizes(), x.options().dtype(type));
  for (const DropoutRun& run : dropout_runs(site, x.numel())) {
    detail::DropoutOf<X, Out> of{.x = x.const_data_ptr<X>() + run.begin,
                                 .residual = residual.defined() ? residual.const_data_ptr<Out>() + run.begin : nullptr,
                                 .out = out.mutable_data_ptr<Out>() + run.begin,
                                 .keep = {site.key, run.first, dropout_threshold(site.p), dropout_scale(site.p)}};
    launched::Order order;
    launched::elementwise(of, run.count, nullptr, order);
  }
  return out;
}

template <class X, class Out>
void expect_the_reference(std::int64_t n, const Dropout& site, at::ScalarType x_type, at::ScalarType type) {
  // Tries even and odd addresses, because a pair of neighbours is read at once only if its alignment permits.
  for (const std::int64_t place : {0, 1}) {
    const at::Tensor x = at::randn({n + 1}).to(x_type).narrow(0, place, n);
    const at::Tensor residual = at::randn({n + 1}).to(type).narrow(0, place, n);
    const at::Tensor kept = dropout_with_mask(x.to(at::kFloat), dropout_mask_reference({n}, site), site.p);
    EXPECT_TRUE(equal_bits(by_lanes<X, Out>(x, {}, site, type), kept.to(type))) << n << " " << site.p << " " << site.first;
    EXPECT_TRUE(equal_bits(by_lanes<X, Out>(x, residual, site, type), (residual.to(at::kFloat) + kept).to(type)))
        << n << " " << site.p << " " << site.first;
  }
}

TEST(DropoutLane, DropsWhatTheReferenceDrops) {
  for (const std::int64_t n : {0, 1, 31, 128, 129, 1000}) {
    for (const double p : {0.1, 0.5, 1.0}) {
      for (const std::int64_t first : firsts()) {
        const Dropout site{.p = p, .key = kMaskKey, .first = first};
        expect_the_reference<float, float>(n, site, at::kFloat, at::kFloat);
        expect_the_reference<at::BFloat16, at::BFloat16>(n, site, at::kBFloat16, at::kBFloat16);
        expect_the_reference<at::Half, at::Half>(n, site, at::kHalf, at::kHalf);
        expect_the_reference<at::BFloat16, float>(n, site, at::kBFloat16, at::kFloat);
        expect_the_reference<float, at::Half>(n, site, at::kFloat, at::kHalf);
      }
    }
  }
}

TEST(DropoutLane, TakesRunsInAnyOrder) {
  const Dropout site{.p = 0.3, .key = kMaskKey, .runs = {{5 * 77, 2 * 77}, {0, 77}, {200 * 77, 77}}};
  expect_the_reference<float, float>(4 * 77, site, at::kFloat, at::kFloat);
  expect_the_reference<at::BFloat16, float>(4 * 77, site, at::kBFloat16, at::kFloat);
}

TEST(DropoutLane, EachElementHasOneLane) {
  EXPECT_EQ(detail::lanes_of(5, 0), 0);
  EXPECT_EQ(detail::lanes_of(0, 128), 16);
  EXPECT_EQ(detail::lanes_of(1, 128), 32);
  EXPECT_EQ(detail::lanes_of(0, std::int64_t{1} << 36), std::int64_t{1} << 33);
}

}  // namespace
}  // namespace millrace::kernels
