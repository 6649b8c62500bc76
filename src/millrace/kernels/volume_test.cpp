// Compares the kernels of 3-D convolutional networks with ATen: smooth_leaky and circular_pad, values and gradients, both
// layouts.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/kernels/circular_pad.h"
#include "millrace/kernels/conv3d.h"
#include "millrace/kernels/detail/test_support.h"
#include "millrace/kernels/remove_components.h"
#include "millrace/kernels/smooth_leaky.h"

namespace millrace::kernels {
namespace {

class Volume : public EachTable {};
INSTANTIATE_TEST_SUITE_P(Tables, Volume, testing::ValuesIn(detail::usable_tables().begin(), detail::usable_tables().end()),
                         table_name);

TEST_P(Volume, SmoothLeakyHasItsKnownValues) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const at::Tensor x = at::tensor({-3.0, -1.0, 0.0, 0.5, 1.0, 2.0, -inf, inf, nan}).to(at::kFloat);
  const std::vector<double> expected = {-3 / 3.5, -1 / 3.5, 1 / 10.5, (-0.125 / 3 + 0.25 + 1 + 1.0 / 3) / 3.5, 3 / 3.5, 6 / 3.5};
  for (const at::Tensor& y : {smooth_leaky(x), smooth_leaky_plain(x)}) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(y[static_cast<std::int64_t>(i)].item<double>(), expected[i], 1e-6);
    }
    EXPECT_EQ(y[6].item<double>(), -inf);
    EXPECT_EQ(y[7].item<double>(), inf);
    EXPECT_TRUE(std::isnan(y[8].item<double>()));
  }
}

TEST_P(Volume, SmoothLeakyGradientIsTheSlope) {
  at::Tensor x = at::tensor({-1.0, 0.0, 1.0}).to(at::kFloat).requires_grad_();
  smooth_leaky(x).sum().backward();
  constexpr double kStep = 1e-4;
  const at::Tensor at_x = x.detach().to(at::kDouble);
  const at::Tensor central = (smooth_leaky_plain(at_x + kStep) - smooth_leaky_plain(at_x - kStep)) / (2 * kStep);
  EXPECT_LE((x.grad() - central).abs().max().item<double>(), 1e-3);
  EXPECT_NEAR(x.grad()[0].item<double>(), 1 / 3.5, 1e-6);
  EXPECT_NEAR(x.grad()[1].item<double>(), 2 / 3.5, 1e-6);
  EXPECT_NEAR(x.grad()[2].item<double>(), 3 / 3.5, 1e-6);
}

TEST_P(Volume, SmoothLeakyAgreesWithAtenInAnyLayout) {
  const auto kernel = [](const Tensors& x) { return Tensors{smooth_leaky(x[0])}; };
  const auto reference = [](const Tensors& x) { return Tensors{smooth_leaky_plain(x[0])}; };
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const double tolerance = type == at::kFloat ? 1e-6 : 1e-2;
    for (const bool strided : {false, true}) {
      expect_agreement(kernel, reference, {(at::randn({2, 5, 3, 4, 7}) * 2).to(type)}, tolerance, strided);
      expect_agreement(kernel, reference, {strided_randn({3, 33}, type)}, tolerance, strided);
    }
    const at::Tensor last = at::randn({2, 5, 3, 4, 7}).to(type).contiguous(at::MemoryFormat::ChannelsLast3d);
    expect_agreement(kernel, reference, {last}, tolerance);
    EXPECT_TRUE(smooth_leaky(last).is_contiguous(at::MemoryFormat::ChannelsLast3d));
  }
  EXPECT_EQ(smooth_leaky(at::randn({0, 3})).numel(), 0);
}

TEST_P(Volume, ComponentsGoAsTheirFormulaSays) {
  for (const std::int64_t pixels : {1, 16, 63, 64, 200}) {
    for (const std::int64_t count : {1, 4, 7, 11}) {
      const at::Tensor x = at::randn({2, 3, 18, pixels}, at::kDouble);
      const at::Tensor mean = at::randn({18, 1}, at::kDouble);
      const at::Tensor components = at::randn({18, count}, at::kDouble) / 4;
      const at::Tensor expected = remove_components_plain(x, mean, components);
      const at::Tensor d = x - mean;
      EXPECT_LE((expected - (d - components.matmul(components.t().matmul(d)))).abs().max().item<double>(), 1e-12);
      const auto f32 = [](const at::Tensor& value) { return value.to(at::kFloat); };
      const double size = d.abs().max().item<double>() * (1 + static_cast<double>(count));
      for (const at::Tensor& clean :
           {remove_components(f32(x), f32(mean), f32(components)), remove_components_plain(f32(x), f32(mean), f32(components)),
            remove_components(f32(x).transpose(0, 1), f32(mean), f32(components)).transpose(0, 1)}) {
        EXPECT_LE((clean - expected).abs().max().item<double>(), 2e-6 * size) << pixels << " pixels, " << count << " components";
      }
    }
  }
  EXPECT_EQ(remove_components(at::zeros({0, 4, 5}), at::zeros({4, 1}), at::zeros({4, 2})).numel(), 0);
}

TEST_P(Volume, CircularPadIsCatAndPad) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const auto layout : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast3d}) {
      for (const std::vector<std::int64_t>& sizes : std::vector<std::vector<std::int64_t>>{{2, 3, 4, 5, 6}, {1, 2, 1, 2, 3}}) {
        std::vector<std::int64_t> more = sizes;
        more[1] = 5;
        const at::Tensor x = at::randn(sizes).to(type).contiguous(layout);
        const at::Tensor y = at::randn(more).to(type).contiguous(layout);
        EXPECT_TRUE(equal_bits(circular_pad(x), circular_pad_plain(x).contiguous()));
        EXPECT_TRUE(equal_bits(circular_pad(x, y), circular_pad_plain(x, y).contiguous()));
        EXPECT_TRUE(circular_pad(x, y).is_contiguous(layout));
        const double tolerance = type == at::kFloat ? 1e-6 : 1e-2;
        for (const bool strided : {false, true}) {
          expect_agreement([](const Tensors& in) { return Tensors{circular_pad(in[0])}; },
                           [](const Tensors& in) { return Tensors{circular_pad_plain(in[0])}; }, {x}, tolerance, strided);
          expect_agreement([](const Tensors& in) { return Tensors{circular_pad(in[0], in[1])}; },
                           [](const Tensors& in) { return Tensors{circular_pad_plain(in[0], in[1])}; }, {x, y}, tolerance,
                           strided);
        }
      }
    }
  }
}

constexpr auto kLast = at::MemoryFormat::ChannelsLast3d;

// The definition of direct_conv3d, in any type.
at::Tensor padded_convolution(const at::Tensor& x, const at::Tensor& more, const at::Tensor& weight, const at::Tensor& bias) {
  return at::conv3d(circular_pad_plain(x, more), weight, bias);
}

TEST_P(Volume, DirectConvolutionIsPadAndConvolution) {
  struct Case {
    std::vector<std::int64_t> volume;  // N, D, H, W
    std::int64_t channels, more, outputs;
  };
  const std::vector<Case> cases = {{{2, 3, 5, 7}, 1, 0, 1},     {{1, 1, 2, 3}, 3, 2, 5},    {{1, 2, 9, 5}, 2, 0, 16},
                                   {{1, 3, 4, 49}, 16, 0, 16},  {{1, 2, 10, 17}, 9, 8, 13}, {{2, 1, 1, 1}, 8, 0, 33},
                                   {{1, 2, 3, 13}, 32, 32, 32}, {{1, 2, 3, 6}, 20, 0, 70},  {{1, 2, 2, 40}, 7, 17, 3}};
  const int threads = at::get_num_threads();
  int count = 0;
  for (const Case& one : cases) {
    at::set_num_threads(1 + count++ % 4);
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      const auto volume = [&](std::int64_t channels) {
        return at::randn({one.volume[0], channels, one.volume[1], one.volume[2], one.volume[3]}).to(type).contiguous(kLast);
      };
      // Weights are rounded to bf16 first, so that in bf16 only the rounding of results differs.
      const at::Tensor weight = (at::randn({one.outputs, one.channels + one.more, 3, 3, 3}) / 8).to(type).to(at::kFloat);
      const double tolerance = type == at::kFloat ? 1e-5 : 1e-2;
      for (const bool strided : {false, true}) {
        if (one.more == 0) {
          expect_agreement([](const Tensors& in) { return Tensors{direct_conv3d(in[0].contiguous(kLast), {}, in[1], in[2])}; },
                           [](const Tensors& in) { return Tensors{padded_convolution(in[0], {}, in[1], in[2])}; },
                           {volume(one.channels), weight, at::randn({one.outputs})}, tolerance, strided);
        } else {
          expect_agreement(
              [](const Tensors& in) {
                return Tensors{direct_conv3d(in[0].contiguous(kLast), in[1].contiguous(kLast), in[2], in[3])};
              },
              [](const Tensors& in) { return Tensors{padded_convolution(in[0], in[1], in[2], in[3])}; },
              {volume(one.channels), volume(one.more), weight, at::randn({one.outputs})}, tolerance, strided);
        }
      }
    }
  }
  at::set_num_threads(threads);
}

TEST_P(Volume, DirectConvolutionGivesTheGradientsThatAreWanted) {
  const at::Tensor x = at::randn({1, 2, 3, 4, 5}).contiguous(kLast);
  const at::Tensor more = at::randn({1, 3, 3, 4, 5}).contiguous(kLast).requires_grad_();
  const at::Tensor weight = at::randn({4, 5, 3, 3, 3});
  const at::Tensor bias = at::randn({4}).requires_grad_();
  const at::Tensor y = direct_conv3d(x, more, weight, bias);
  EXPECT_TRUE(y.is_contiguous(kLast));
  y.sum().backward();
  EXPECT_FALSE(x.grad().defined());
  EXPECT_FALSE(weight.grad().defined());
  EXPECT_TRUE(more.grad().is_contiguous(kLast));
  EXPECT_NEAR(bias.grad()[0].item<double>(), 60, 1e-4);
}

TEST_P(Volume, DirectConvolutionSaysWhatItTakes) {
  const at::Tensor weight = at::randn({4, 2, 3, 3, 3});
  const at::Tensor bias = at::randn({4});
  const at::Tensor x = at::randn({1, 2, 3, 4, 5});
  EXPECT_FALSE(has_direct_conv3d(x, {}, weight, bias));
  EXPECT_TRUE(has_direct_conv3d(x.contiguous(kLast), {}, weight, bias));
  EXPECT_FALSE(has_direct_conv3d(x.to(at::kDouble).contiguous(kLast), {}, weight, bias));
  EXPECT_FALSE(has_direct_conv3d(x.contiguous(kLast), x, weight, bias));
  EXPECT_FALSE(has_direct_conv3d(x.contiguous(kLast), {}, weight.narrow(4, 0, 1), bias));
  EXPECT_FALSE(has_direct_conv3d(x.contiguous(kLast), {}, weight.flatten(3), bias));
}

TEST_P(Volume, VolumesOfOtherSizesDoNotStandSideBySide) {
  const at::Tensor x = at::randn({1, 2, 4, 4, 4}), weight = at::randn({4, 4, 3, 3, 3}), bias = at::randn({4});
  for (const std::vector<std::int64_t>& sizes :
       std::vector<std::vector<std::int64_t>>{{1, 2, 8, 4, 4}, {1, 2, 4, 4, 2}, {2, 2, 4, 4, 4}}) {
    const at::Tensor more = at::randn(sizes);
    EXPECT_THROW((void)circular_pad(x, more), InternalError);
    EXPECT_FALSE(has_direct_conv3d(x.contiguous(kLast), more.contiguous(kLast), weight, bias));
  }
}

}  // namespace
}  // namespace millrace::kernels
