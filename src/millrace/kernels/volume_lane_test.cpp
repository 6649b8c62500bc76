// Compares the devices' RMS norm, group norm, soft pooling and circular padding with ATen in fp64. The lanes' arithmetic runs on
// the CPU, in the geometry of device/cuda/*.cu.
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "millrace/kernels/arguments.h"
#include "millrace/kernels/circular_pad.h"
#include "millrace/kernels/detail/test_launch_volumes.h"
#include "millrace/kernels/detail/test_support.h"
#include "millrace/kernels/group_norm.h"
#include "millrace/kernels/rms_norm.h"
#include "millrace/kernels/soft_pool.h"

namespace millrace::kernels {
namespace {

constexpr float kUnwritten = std::numeric_limits<float>::quiet_NaN();
constexpr auto kVolumeTypes = {at::kFloat, at::kBFloat16, at::kHalf};

// The error may be that of fp32 arithmetic and of one rounding to the type of `result`.
void expect_volume(const at::Tensor& result, const at::Tensor& exact, const std::string& what) {
  const at::ScalarType type = result.scalar_type();
  const double half_step = type == at::kFloat ? 2e-6 : type == at::kHalf ? std::ldexp(1.0, -11) : std::ldexp(1.0, -8);
  const at::Tensor is = result.to(at::kDouble), should = exact.detach().to(at::kDouble);
  EXPECT_TRUE(at::allclose(is, should, half_step, 4e-6 * std::max(1.0, should.abs().max().item<double>())))
      << what << " " << type << ": " << (is - should).abs().max().item<double>();
}

at::Tensor volume(at::IntArrayRef sizes, at::ScalarType type, at::MemoryFormat layout) {
  return (at::randn(sizes) * 2 + 0.5).to(type).contiguous(layout);
}

std::int64_t positions_of(const at::Tensor& x) { return x.numel() / (x.size(0) * x.size(1)); }

TEST(RmsNormLane, GivesTheValuesAndTheGradientsOfAten) {
  at::manual_seed(41);
  for (const std::int64_t channels : {1, 8, 20, 300}) {
    for (const auto layout : kLayouts) {
      for (const auto type : kVolumeTypes) {
        const at::Tensor x = volume({2, channels, 3, 5, 7}, type, layout), gradient = volume(x.sizes(), type, layout);
        const at::Tensor y = at::full_like(x, kUnwritten), dx = at::full_like(x, kUnwritten);
        const at::Tensor rates = at::full({2 * 105}, kUnwritten);
        detail::RmsNorm args{.x = x.const_data_ptr(),
                             .gradient = nullptr,
                             .out = y.data_ptr(),
                             .rates = rates.data_ptr<float>(),
                             .type = type_of(type),
                             .samples = 2,
                             .channels = channels,
                             .positions = positions_of(x),
                             .channels_last = layout != at::MemoryFormat::Contiguous,
                             .epsilon = 1e-5F};
        launched::rms_norm(args);
        args.gradient = gradient.const_data_ptr(), args.out = dx.data_ptr();
        launched::rms_norm(args, launched::Order(1));
        const at::Tensor exact_x = x.to(at::kDouble).detach().requires_grad_();
        const at::Tensor exact = rms_norm_silu_plain(exact_x, 1e-5);
        exact.backward(gradient.to(at::kDouble));
        expect_volume(y, exact, std::to_string(channels));
        expect_volume(dx, exact_x.grad(), std::to_string(channels) + " backward");
      }
    }
  }
}

struct GroupNormResults {
  at::Tensor y, dx, sums;
};

// Each may be undefined.
struct GroupNormOperands {
  at::Tensor weight, bias, before, more;
};

GroupNormResults group_norm_by_lanes(const at::Tensor& x, const at::Tensor& gradient, const GroupNormOperands& with,
                                     const GroupNormOptions& options, std::int64_t splits, launched::Order order) {
  GroupNormResults all{at::full_like(x, kUnwritten), at::full_like(x, kUnwritten),
                       at::full({with.before.defined() ? 3 : 2, x.size(0), x.size(1)}, kUnwritten)};
  const auto floats = [](const at::Tensor& one) { return one.defined() ? one.const_data_ptr<float>() : nullptr; };
  DeviceGroupNorm args{.x = x.const_data_ptr(),
                       .gradient = nullptr,
                       .more = nullptr,
                       .out = all.y.mutable_data_ptr(),
                       .before = floats(with.before),
                       .weight = floats(with.weight),
                       .bias = floats(with.bias),
                       .statistics = nullptr,
                       .scratch = nullptr,
                       .sums = all.sums.mutable_data_ptr<float>(),
                       .type = type_of(x),
                       .samples = x.size(0),
                       .channels = x.size(1),
                       .groups = options.groups,
                       .positions = positions_of(x),
                       .splits = splits,
                       .channels_last = !x.is_contiguous(),
                       .silu = options.silu,
                       .slope = static_cast<float>(options.slope),
                       .epsilon = static_cast<float>(options.epsilon)};
  const at::Tensor scratch = at::empty({args.scratch_floats()}), statistics = at::full({args.statistics_floats()}, kUnwritten);
  EXPECT_EQ(args.sums_floats(), all.sums.numel());
  args.scratch = scratch.mutable_data_ptr<float>(), args.statistics = statistics.mutable_data_ptr<float>();
  launched::group_norm(args, order);
  args.gradient = gradient.const_data_ptr(), args.out = all.dx.mutable_data_ptr();
  args.more = with.more.defined() ? with.more.const_data_ptr() : nullptr;
  launched::group_norm(args, order);
  return all;
}

// `branches`: x lacks a bias, and another operation reads x too, so that its gradient has two parts.
void expect_group_norm(const at::Tensor& x, const GroupNormOptions& options, bool affine, bool branches, std::int64_t splits) {
  const std::int64_t channels = x.size(1);
  const at::Tensor gradient = at::randn_like(x);
  GroupNormOperands with;
  if (affine) with.weight = at::randn({channels}), with.bias = at::randn({channels});
  if (branches) with.before = at::randn({channels}) * 2, with.more = at::randn_like(x);
  const GroupNormResults ours = group_norm_by_lanes(x, gradient, with, options, splits, {});
  const at::Tensor exact_x = x.to(at::kDouble).detach().requires_grad_();
  const auto exact_of = [](const at::Tensor& one) { return one.defined() ? one.to(at::kDouble).requires_grad_() : one; };
  const at::Tensor exact_weight = exact_of(with.weight), exact_bias = exact_of(with.bias), exact_before = exact_of(with.before);
  const at::Tensor whole = branches ? exact_x + exact_before.view({1, -1, 1, 1, 1}) : exact_x;
  const at::Tensor exact = group_norm_plain(whole, exact_weight, exact_bias, options);
  exact.backward(gradient.to(at::kDouble));
  const std::string what =
      std::to_string(channels) + " channels, " + std::to_string(options.groups) + " groups, " + std::to_string(splits);
  const auto sum = [&](std::int64_t which) { return ours.sums.to(at::kDouble).sum(1)[which].to(at::kFloat); };
  expect_volume(ours.y, exact, what);
  expect_volume(ours.dx, branches ? exact_x.grad() + with.more : exact_x.grad(), what + " backward");
  if (affine) expect_volume(sum(0), exact_weight.grad(), what + " weight");
  if (affine) expect_volume(sum(1), exact_bias.grad(), what + " bias");
  if (branches) expect_volume(sum(2), exact_before.grad(), what + " bias before");
  const GroupNormResults again = group_norm_by_lanes(x, gradient, with, options, splits, launched::Order(2));
  EXPECT_TRUE(equal_bits(again.y, ours.y) && equal_bits(again.dx, ours.dx) && equal_bits(again.sums, ours.sums)) << what;
}

TEST(GroupNormLane, GivesTheValuesAndTheGradientsOfAtenInAnyOrderOfBlocksAndThreads) {
  at::manual_seed(42);
  for (const auto layout : kLayouts) {
    for (const auto type : kVolumeTypes) {
      for (const std::int64_t channels : {1, 6, 16, 256}) {
        const std::int64_t groups = channels == 1 ? 1 : channels == 6 ? 3 : channels / 4;
        const at::Tensor x = volume({2, channels, 3, 4, 6}, type, layout);
        for (const bool branches : {false, true})
          if (!x.is_contiguous() || layout == at::MemoryFormat::Contiguous)
            expect_group_norm(x, {.groups = groups, .silu = channels != 6, .slope = 0.1}, channels > 1, branches,
                              channels == 16 ? 3 : 1);
      }
      // As many groups as channels: an instance norm.
      for (const bool branches : {false, true})
        expect_group_norm(volume({3, 8, 5, 5, 7}, type, layout), {.groups = 8}, true, branches, 40);
    }
  }
}

TEST(GroupNormLane, LosesLittleToALargeMean) {
  at::manual_seed(44);
  const at::Tensor x = at::randn({1, 4, 6, 6, 6}) + 1000, ones = at::ones({4}), zeros = at::zeros({4});
  const GroupNormResults ours = group_norm_by_lanes(x, at::randn_like(x), {ones, zeros, {}, {}}, {.groups = 2}, 2, {});
  const at::Tensor exact = group_norm_plain(x.to(at::kDouble), ones.to(at::kDouble), zeros.to(at::kDouble), {.groups = 2});
  EXPECT_LT((ours.y - exact).abs().max().item<double>(), 1e-3);  // x itself is exact only to 3e-5
}

TEST(SoftPoolLane, GivesTheValuesAndTheGradientsOfAtenInAnyOrderOfBlocksAndThreads) {
  at::manual_seed(45);
  for (const auto layout : kLayouts) {
    for (const auto type : kVolumeTypes) {
      for (const auto& [height, width] : {std::pair<std::int64_t, std::int64_t>{2, 2}, {5, 8}, {9, 3}}) {
        for (const std::int64_t stride : {1, 2, 3}) {
          const std::string what = std::to_string(height) + " x " + std::to_string(width) + ", stride " + std::to_string(stride);
          const at::Tensor x = volume({2, 5, 3, height, width}, type, layout);
          x[0][0][0][0].fill_(200);  // beyond the largest exponent
          const at::Tensor exact_x = x.to(at::kDouble).requires_grad_();
          const at::Tensor exact = blurred_soft_pool_plain(exact_x, stride);
          const at::Tensor gradient = volume(exact.sizes(), type, layout), dx = at::full_like(x, kUnwritten);
          const at::Tensor y = at::full(exact.sizes(), kUnwritten, type).contiguous(layout);
          exact.backward(gradient.to(at::kDouble));
          detail::SoftPool args{.x = x.const_data_ptr(),
                                .gradient = nullptr,
                                .out = y.data_ptr(),
                                .type = type_of(x),
                                .planes = 2 * 5 * 3,
                                .channels = 5,
                                .height = height,
                                .width = width,
                                .out_height = y.size(3),
                                .out_width = y.size(4),
                                .stride = stride,
                                .channels_last = layout != at::MemoryFormat::Contiguous};
          launched::soft_pool(args, launched::Order(6));
          args.gradient = gradient.const_data_ptr(), args.out = dx.data_ptr();
          launched::soft_pool(args, launched::Order(7));
          expect_volume(y, exact, what);
          expect_volume(dx, exact_x.grad(), what + " backward");
        }
      }
    }
  }
}

// Arguments for the channels of a padded volume from `first` on.
CircularPad padding(const at::Tensor& plain, const at::Tensor& padded, std::int64_t first, bool backward) {
  const bool last = !padded.is_contiguous();
  const std::int64_t channels = plain.size(1), all = padded.size(1);
  detail::PaddedVolume v{.samples = plain.size(0),
                         .planes = last ? 1 : channels,
                         .depth = plain.size(2),
                         .height = plain.size(3),
                         .width = plain.size(4),
                         .pixel = last ? channels : 1,
                         .step = last ? all : 1,
                         .padded_first = 0,
                         .padded_stride = 0};
  v.padded_first = last ? first : first * v.padded_plane();
  v.padded_stride = last ? v.padded_plane() : all * v.padded_plane();
  return {.in = backward ? padded.const_data_ptr() : plain.const_data_ptr(),
          .out = backward ? plain.data_ptr() : padded.data_ptr(),
          .type = type_of(plain),
          .volume = v,
          .backward = backward};
}

TEST(CircularLane, PadsAndAddsUpAsAten) {
  at::manual_seed(43);
  for (const auto layout : kLayouts) {
    for (const auto type : kVolumeTypes) {
      for (const std::int64_t channels : {3, 8}) {
        for (const std::int64_t side : {1, 2, 5}) {
          const at::Tensor x = volume({2, channels, side, 3, 4}, type, layout), more = volume({2, 16, side, 3, 4}, type, layout);
          const std::string what = std::to_string(channels) + " channels, side " + std::to_string(side);
          const at::Tensor exact_x = x.to(at::kDouble).requires_grad_(), exact_more = more.to(at::kDouble).requires_grad_();
          const at::Tensor exact = circular_pad_plain(exact_x, exact_more);
          const at::Tensor out = at::full(exact.sizes(), kUnwritten, type).contiguous(layout);
          launched::circular_pad(padding(x, out, 0, false));
          launched::circular_pad(padding(more, out, channels, false), launched::Order(4));
          EXPECT_TRUE(equal_bits(out.to(at::kDouble), exact)) << what;
          const at::Tensor gradient = volume(exact.sizes(), type, layout), dx = at::full_like(x, kUnwritten),
                           dmore = at::full_like(more, kUnwritten);
          exact.backward(gradient.to(at::kDouble));
          launched::circular_pad(padding(dx, gradient, 0, true));
          launched::circular_pad(padding(dmore, gradient, channels, true));
          expect_volume(dx, exact_x.grad(), what);
          expect_volume(dmore, exact_more.grad(), what);
        }
      }
    }
  }
}

}  // namespace
}  // namespace millrace::kernels
