#include "millrace/kernels/convolution_planes.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <random>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "millrace/kernels/detail/test_support.h"

namespace millrace::kernels {
namespace {

using Sizes = std::vector<std::int64_t>;

struct Convolution {
  Sizes input, weight, stride, padding, dilation, output_padding;
  bool transposed = false;
  std::int64_t groups = 1;

  [[nodiscard]] VolumeConvolution how() const {
    return {.stride = stride,
            .padding = padding,
            .dilation = dilation,
            .output_padding = output_padding,
            .transposed = transposed,
            .groups = groups};
  }
  [[nodiscard]] std::string text() const {
    std::ostringstream text;
    text << at::IntArrayRef(input) << " x " << at::IntArrayRef(weight) << " stride " << at::IntArrayRef(stride) << " padding "
         << at::IntArrayRef(padding) << " dilation " << at::IntArrayRef(dilation) << " groups " << groups
         << (transposed ? " transposed" : "");
    return text.str();
  }
};

Convolution draw(std::mt19937& random) {
  const auto between = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  Convolution drawn;
  drawn.transposed = between(0, 2) == 0;
  drawn.groups = between(1, 2);
  const std::int64_t in = between(1, 5), out = between(1, 5);  // channels of a group
  drawn.input = {between(1, 3), in * drawn.groups};
  drawn.weight = drawn.transposed ? Sizes{in * drawn.groups, out} : Sizes{out * drawn.groups, in};
  for (int i = 0; i < 3; ++i) {
    drawn.weight.push_back(between(1, 4));
    drawn.stride.push_back(between(1, 3));
    drawn.dilation.push_back(between(1, 2));
    const std::int64_t extent = (drawn.weight.back() - 1) * drawn.dilation.back() + 1;
    drawn.padding.push_back(between(0, (extent - 1) / 2));
    drawn.output_padding.push_back(drawn.transposed ? between(0, drawn.stride.back() - 1) : 0);
    drawn.input.push_back(between(std::max<std::int64_t>(1, extent - 2 * drawn.padding.back()), extent + 5));
  }
  return drawn;
}

class Operands {
 public:
  Operands(const Convolution& drawn, at::ScalarType format)
      : x(at::randn(drawn.input).to(format)), weight(at::randn(drawn.weight).to(format)) {
    gradient = at::randn(at::convolution(x.to(at::kDouble), weight.to(at::kDouble), {}, drawn.stride, drawn.padding,
                                         drawn.dilation, drawn.transposed, drawn.output_padding, drawn.groups)
                             .sizes())
                   .to(format);
  }
  at::Tensor x, weight, gradient;
};

std::tuple<at::Tensor, at::Tensor> exact(const Convolution& drawn, const Operands& of) {
  const Sizes outputs = {of.gradient.size(1)};
  const auto found = at::convolution_backward(of.gradient.to(at::kDouble), of.x.to(at::kDouble), of.weight.to(at::kDouble),
                                              at::OptionalIntArrayRef(outputs), drawn.stride, drawn.padding, drawn.dilation,
                                              drawn.transposed, drawn.output_padding, drawn.groups, {false, true, true});
  return {std::get<1>(found), std::get<2>(found)};
}

TEST(WeightsByPlanes, AreThoseOfTheVolume) {
  at::manual_seed(36);
  std::mt19937 random(36);
  for (int i = 0; i < 60; ++i) {
    const Convolution drawn = draw(random);
    SCOPED_TRACE(drawn.text());
    const Operands of(drawn, at::kFloat);
    const auto [weight, bias] = exact(drawn, of);
    for (const auto x_layout : kLayouts) {
      for (const auto layout : kLayouts) {
        const auto found =
            weights_by_planes(of.x.contiguous(x_layout), of.gradient.contiguous(layout), of.weight, drawn.how(), true, true);
        ASSERT_EQ(found.weight.sizes(), of.weight.sizes());
        ASSERT_LT((found.weight - weight).abs().max().item<double>(), 1e-4);
        ASSERT_LT((found.bias - bias).abs().max().item<double>(), 1e-4);
      }
    }
  }
}

// Volumes of many sizes; some share a call, others have a separate call. The bias is computed together with a plane of the
// kernel, or separately.
TEST(WeightsByPlanes, InBf16AreAsGoodAsTheFormat) {
  const Sizes one = {1, 1, 1}, none = {0, 0, 0};
  for (const Convolution& drawn :
       std::vector<Convolution>{{{5, 16, 4, 8, 8}, {20, 16, 3, 3, 3}, one, one, one, none},
                                {{3, 32, 6, 40, 40}, {16, 32, 3, 3, 3}, one, {0, 1, 1}, one, none},
                                {{1, 16, 12, 20, 20}, {32, 16, 3, 3, 3}, {2, 2, 2}, one, one, none},
                                {{2, 32, 5, 10, 10}, {32, 16, 2, 2, 2}, {2, 2, 2}, none, one, none, true},
                                {{2, 32, 9, 12, 12}, {16, 16, 3, 3, 3}, one, {2, 2, 2}, {2, 2, 2}, none, false, 2},
                                {{1, 16, 2, 9, 9}, {16, 16, 5, 3, 3}, one, {2, 1, 1}, one, none}}) {
    SCOPED_TRACE(drawn.text());
    const Operands of(drawn, at::kBFloat16);
    const auto [weight, bias] = exact(drawn, of);
    for (const auto layout : kLayouts) {
      const auto found =
          weights_by_planes(of.x.contiguous(layout), of.gradient.contiguous(layout), of.weight, drawn.how(), true, true);
      EXPECT_EQ(found.weight.scalar_type(), at::kFloat);
      EXPECT_LT(relative_error(found.weight, weight), 5e-3);
      EXPECT_LT(relative_error(found.bias, bias), 5e-3);
    }
  }
}

TEST(WeightsByPlanes, NothingIsComputedThatNobodyWants) {
  const Sizes one = {1}, none = {0};
  const VolumeConvolution how{.stride = one, .padding = one, .dilation = one, .output_padding = none};
  const at::Tensor x = at::randn({2, 3, 4, 5, 6}), gradient = at::randn({2, 7, 4, 5, 6}), weight = at::randn({7, 3, 3, 3, 3});
  EXPECT_FALSE(weights_by_planes(x, gradient, weight, how, false, true).weight.defined());
  EXPECT_FALSE(weights_by_planes(x, gradient, weight, how, true, false).bias.defined());
  const auto found = weights_by_planes(x.narrow(0, 0, 0), gradient.narrow(0, 0, 0), weight, how, true, true);
  EXPECT_EQ(found.weight.abs().sum().item<double>() + found.bias.abs().sum().item<double>(), 0);
}

}  // namespace
}  // namespace millrace::kernels
