// Tests the stencils, the RMS norm and the soft pooling: compares the plain paths with their formulas in fp64, and the kernels
// with the plain paths. Covers values and gradients, both layouts and both types.
#include "millrace/nn/stencil.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <vector>

#include "millrace/device/autocast.h"

namespace millrace::nn {
namespace {

using Sizes = std::vector<std::int64_t>;
const Fused kPlainWays = Fused::plain();

// The value of a plane at (h, w); 0 outside.
double pixel(const at::Tensor& plane, std::int64_t h, std::int64_t w) {
  if (h < 0 || w < 0 || h >= plane.size(0) || w >= plane.size(1)) return 0.0;
  return plane[h][w].item<double>();
}

TEST(Stencil, BlurIsItsFormula) {
  const at::Tensor x = at::randn({2, 7, 6}, at::kDouble);
  constexpr double kSigma = 0.8;
  const at::Tensor y = gaussian_blur(x, at::tensor(kSigma, at::kDouble), 5, kPlainWays);
  std::vector<double> taps;
  double total = 0;
  for (int d = -2; d <= 2; ++d) taps.push_back(std::exp(-d * d / (2 * kSigma * kSigma)));
  for (const double tap : taps) total += tap;
  for (const std::int64_t h : {0, 3, 6}) {
    for (const std::int64_t w : {0, 2, 5}) {
      double expected = 0;
      for (int i = 0; i < 5; ++i)
        for (int j = 0; j < 5; ++j) expected += taps[i] * taps[j] / (total * total) * pixel(x[1], h + i - 2, w + j - 2);
      EXPECT_NEAR(y[1][h][w].item<double>(), expected, 1e-12);
    }
  }
}

TEST(Stencil, ZoomInterpolatesBetweenPixels) {
  const at::Tensor x = at::arange(35, at::kDouble).view({1, 5, 7});
  const at::Tensor same = zoom(at::arange(25, at::kDouble).view({1, 5, 5}), at::ones({2}, at::kDouble), 5, kPlainWays);
  EXPECT_LE((same - at::arange(25, at::kDouble).view({1, 5, 5})).abs().max().item<double>(), 1e-12);
  const at::Tensor y = zoom(x, at::tensor({0.5, 0.25}, at::kDouble), 3, kPlainWays);  // columns 1.5, 3, 4.5; rows 1.5, 2, 2.5
  EXPECT_NEAR(y[0][0][0].item<double>(), 7 * 1.5 + 1.5, 1e-12);
  EXPECT_NEAR(y[0][1][2].item<double>(), 7 * 2 + 4.5, 1e-12);
  EXPECT_EQ(zoom(x, at::full({2}, 3.0, at::kDouble), 3, kPlainWays)[0][0][0].item<double>(), 0.0);  // the point lies outside
}

TEST(Stencil, TemporalFiltersLookForward) {
  const at::Tensor x = at::randn({2, 1, 6, 2, 3}, at::kDouble), weight = at::randn({3, 1, 4}, at::kDouble);
  const at::Tensor y = temporal_filters(x, weight, kPlainWays);
  EXPECT_EQ(y.sizes(), (Sizes{2, 3, 3, 2, 3}));
  double expected = 0;
  for (int k = 0; k < 4; ++k) expected += weight[2][0][k].item<double>() * x[1][0][2 + k][1][2].item<double>();
  EXPECT_NEAR(y[1][2][2][1][2].item<double>(), expected, 1e-12);
}

TEST(Stencil, RmsNormIsItsFormula) {
  const at::Tensor x = at::randn({2, 5, 3}, at::kDouble);
  const at::Tensor y = rms_norm_silu(x, 1e-5, kPlainWays);
  double squares = 0;
  for (int c = 0; c < 5; ++c) squares += std::pow(x[1][c][2].item<double>(), 2);
  const double h = x[1][3][2].item<double>() / std::sqrt(squares / 5 + 1e-5);
  EXPECT_NEAR(y[1][3][2].item<double>(), h / (1 + std::exp(-h)), 1e-12);
}

TEST(Stencil, SoftPoolingIsItsFormula) {
  const at::Tensor x = at::randn({1, 2, 2, 6, 7}, at::kDouble) * 3;
  for (const std::int64_t stride : {1, 2}) {
    const at::Tensor y = blurred_soft_pool(x, stride, kPlainWays);
    EXPECT_EQ(y.sizes(), (Sizes{1, 2, 2, 4 / stride + 1, 5 / stride + 1}));
    const auto blurred = [&](std::int64_t h, std::int64_t w) {
      double sum = 0;
      for (int i = -1; i <= 1; ++i)
        for (int j = -1; j <= 1; ++j) sum += (2 - std::abs(i)) * (2 - std::abs(j)) / 16.0 * pixel(x[0][1][0], h + i, w + j);
      return sum;
    };
    for (std::int64_t h = 0; h < y.size(3); ++h) {
      double weighted = 0, weights = 0;
      for (int i = 0; i < 4; ++i) {
        const double b = blurred(h * stride + i / 2, stride + i % 2);
        weighted += b * std::exp(b) / 4;
        weights += std::exp(b) / 4;
      }
      EXPECT_NEAR(y[0][1][0][h][1].item<double>(), weighted / (weights + 1e-6), 1e-12);
    }
  }
}

using StencilFunction = std::function<at::Tensor(const std::vector<at::Tensor>&, const Fused&)>;

// Compares the fused path in fp32 with the plain path in fp64: values, and gradients of all inputs from number `first` on.
void expect_agreement(const StencilFunction& function, const std::vector<at::Tensor>& inputs, std::size_t first = 0) {
  std::vector<at::Tensor> ours, theirs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    ours.push_back(inputs[i].detach().clone().set_requires_grad(i >= first));
    theirs.push_back(inputs[i].detach().to(at::kDouble).set_requires_grad(i >= first));
  }
  const at::Tensor result = function(ours, Fused{}), expected = function(theirs, kPlainWays);
  ASSERT_EQ(result.sizes(), expected.sizes());
  const auto close = [](const at::Tensor& a, const at::Tensor& b) {
    return (a - b).abs().max().item<double>() <= 2e-5 * std::max(1.0, b.abs().max().item<double>());
  };
  EXPECT_TRUE(close(result, expected));
  const at::Tensor gradient = at::randn(expected.sizes(), at::kDouble);
  result.backward(gradient.to(at::kFloat));
  expected.backward(gradient);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (i < first) {
      EXPECT_FALSE(ours[i].grad().defined());
    } else {
      EXPECT_TRUE(close(ours[i].grad(), theirs[i].grad())) << i;
    }
  }
}

TEST(Stencil, ProductsAgreeWithConvolutions) {
  for (const std::size_t first : {0, 1}) {  // with 1 the stimulus needs no gradient
    for (const auto& [height, width, taps] : std::vector<std::array<std::int64_t, 3>>{{7, 9, 5}, {4, 3, 19}, {51, 51, 19}}) {
      expect_agreement([taps = taps](const auto& in, const auto& fused) { return gaussian_blur(in[0], in[1], taps, fused); },
                       {at::randn({2, 1, 3, height, width}), at::tensor(1.3F)}, first);
    }
    for (const double scale : {0.693, 1.37, 0.05}) {
      expect_agreement([](const auto& in, const auto& fused) { return zoom(in[0], in[1], 11, fused); },
                       {at::randn({2, 3, 9, 12}), at::tensor({scale, 0.83}, at::kFloat)}, first);
    }
    for (const auto& [frames, taps] : std::vector<std::array<std::int64_t, 2>>{{25, 16}, {5, 5}, {6, 1}}) {
      expect_agreement([](const auto& in, const auto& fused) { return temporal_filters(in[0], in[1], fused); },
                       {at::randn({2, 1, frames, 3, 5}), at::randn({4, 1, taps})}, first);
    }
  }
}

TEST(Stencil, UnderAutocastItComputesInFp32) {
  const device::Autocast autocast(at::kCPU, at::kBFloat16);
  const at::Tensor x = at::randn({1, 4, 2, 6, 6}), filters = at::randn({2, 1, 2});
  for (const Fused& fused : {Fused{}, kPlainWays}) {
    EXPECT_EQ(gaussian_blur(x, at::tensor(1.0F), 3, fused).scalar_type(), at::kFloat);
    EXPECT_EQ(zoom(x, at::ones({2}), 3, fused).scalar_type(), at::kFloat);
    EXPECT_EQ(temporal_filters(x.narrow(1, 0, 1), filters, fused).scalar_type(), at::kFloat);
    EXPECT_EQ(rms_norm_silu(x.to(at::kBFloat16), 1e-5, fused).scalar_type(), at::kBFloat16);
    EXPECT_EQ(blurred_soft_pool(x.to(at::kBFloat16), 2, fused).scalar_type(), at::kBFloat16);
  }
}

}  // namespace
}  // namespace millrace::nn
