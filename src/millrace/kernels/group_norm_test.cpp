// Compares the group norm with its activation, and the convolution of upsampled volumes, with ATen in fp64: values and gradients,
// both layouts, every remainder of a vector.
#include "millrace/kernels/group_norm.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "millrace/kernels/convolution_weights.h"
#include "millrace/kernels/detail/test_support.h"
#include "millrace/kernels/upsampled_conv3d.h"

namespace millrace::kernels {
namespace {

using Sizes = std::vector<std::int64_t>;

class Norms : public EachTable {};
INSTANTIATE_TEST_SUITE_P(Tables, Norms, testing::ValuesIn(detail::usable_tables().begin(), detail::usable_tables().end()),
                         table_name);

struct Case {
  Sizes sizes;
  std::int64_t groups;
};
// A single voxel, remainders in every direction, several segments in both layouts, and strips of 64, 32 and 16 channels.
const std::vector<Case> kCases = {{{1, 7, 1, 1, 1}, 1},   {{2, 6, 3, 5, 7}, 2},    {{1, 15, 2, 3, 3}, 5}, {{3, 16, 1, 8, 9}, 8},
                                  {{1, 117, 4, 4, 3}, 3}, {{2, 4, 17, 16, 16}, 2}, {{2, 64, 4, 5, 4}, 32}};

void expect_like_aten(const Tensors& inputs, const GroupNormOptions& options, double tolerance, bool strided) {
  const auto get = [](const Tensors& in, std::size_t i) { return i < in.size() ? in[i] : at::Tensor(); };
  expect_agreement([&](const Tensors& in) { return Tensors{group_norm(in[0], get(in, 1), get(in, 2), options)}; },
                   [&](const Tensors& in) { return Tensors{group_norm_plain(in[0], get(in, 1), get(in, 2), options)}; }, inputs,
                   tolerance, strided);
}

TEST_P(Norms, GroupNormAgreesWithAten) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const double tolerance = type == at::kFloat ? 2e-5 : 1e-2;
    for (const auto layout : kLayouts) {
      for (const Case& one : kCases) {
        const std::int64_t channels = one.sizes[1];
        const at::Tensor x = (at::randn(one.sizes) * 2 + 1).to(type).contiguous(layout);
        const Tensors affine = {x, at::randn({channels}) + 1.5, at::randn({channels})};
        SCOPED_TRACE(testing::Message() << x.sizes() << " " << type);
        for (const bool strided : {false, true}) {
          expect_like_aten(affine, {.groups = one.groups, .epsilon = 1e-6, .silu = true}, tolerance, strided);
        }
        expect_like_aten(affine, {.groups = one.groups, .epsilon = 1e-6}, tolerance, false);
        if (x.numel() > x.size(0) * channels) {  // a result that is 0 for any x has no gradient to compare
          expect_like_aten({x}, {.groups = channels, .slope = 0.2}, tolerance, false);
        }
        EXPECT_TRUE(group_norm(x, {}, {}, {.groups = one.groups}).is_contiguous(layout));
        EXPECT_EQ(group_norm(x, {}, {}, {.groups = one.groups}).scalar_type(), type);
      }
    }
  }
}

TEST_P(Norms, StatisticsSurviveAMeanFarFromZero) {
  for (const auto layout : kLayouts) {
    const at::Tensor x = (at::randn({1, 32, 8, 9, 9}) + 1000).contiguous(layout);
    const at::Tensor expected = group_norm_plain(x.to(at::kDouble), {}, {}, {.groups = 4});
    EXPECT_LT(relative_error(group_norm(x, {}, {}, {.groups = 4}), expected), 1e-4);
  }
}

TEST_P(Norms, ConstantGroupsAreZeroWithTheSlopeOfEpsilon) {
  for (const auto layout : kLayouts) {
    const at::Tensor x = at::full({1, 4, 2, 2, 2}, 3.0F).contiguous(layout).requires_grad_();
    const at::Tensor y = group_norm(x, {}, {}, {.groups = 2, .epsilon = 1e-6});
    EXPECT_LE(y.abs().max().item<double>(), 1e-3);  // the exact result is 3000 - 3000
    y[0][0][0][0][0].backward();
    EXPECT_NEAR(x.grad()[0][0][0][0][0].item<double>(), 1e3 * (1 - 1.0 / 16), 1e-1);
    EXPECT_NEAR(x.grad()[0][1][1][1][1].item<double>(), -1e3 / 16, 1e-1);
    EXPECT_EQ(x.grad()[0][3][0][0][0].item<double>(), 0.0);
  }
  const at::Tensor voxel = at::full({2, 3, 1, 1, 1}, 3.0F).requires_grad_();
  const at::Tensor y = group_norm(voxel, {}, {}, {.groups = 3, .slope = 0.2});
  y.sum().backward();
  EXPECT_LE(y.abs().max().item<double>(), 1e-3);
  EXPECT_EQ(voxel.grad().abs().max().item<double>(), 0.0);
  EXPECT_EQ(group_norm(at::zeros({0, 4, 2, 2, 2}), {}, {}, {.groups = 2}).numel(), 0);
}

TEST_P(Norms, NotANumberStaysOne) {
  const at::Tensor x = at::randn({1, 4, 2, 2, 2});
  x[0][1][0][0][0] = std::nanf("");
  for (const GroupNormOptions& options : {GroupNormOptions{.groups = 2, .silu = true}, GroupNormOptions{.groups = 2}}) {
    const at::Tensor y = group_norm(x, {}, {}, options);
    EXPECT_TRUE(y.narrow(1, 0, 2).isnan().all().item<bool>());
    EXPECT_FALSE(y.narrow(1, 2, 2).isnan().any().item<bool>());
  }
}

TEST_P(Norms, ThreadsChangeNoBit) {
  const int threads = at::get_num_threads();
  for (const auto layout : kLayouts) {
    const at::Tensor input = at::randn({1, 24, 20, 19, 18}).contiguous(layout);
    const auto gradients = [&](int count) {
      at::set_num_threads(count);
      const at::Tensor x = input.clone().requires_grad_();
      const at::Tensor weight = at::full({24}, 1.5F).requires_grad_();
      const at::Tensor bias = at::full({24}, 0.5F).requires_grad_();
      group_norm(x, weight, bias, {.groups = 8, .silu = true}).square().sum().backward();
      return Tensors{x.grad(), weight.grad(), bias.grad()};
    };
    const Tensors one = gradients(1);
    for (const int count : {2, 3, 7}) {  // with 8 groups: both passes together, separate, separate
      const Tensors more = gradients(count);
      for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(equal_bits(one[i], more[i])) << count << " " << i;
    }
  }
  at::set_num_threads(threads);
}

void expect_upsampled(const at::Tensor& x, std::int64_t outputs, double tolerance) {
  const at::Tensor weight = at::randn({outputs, x.size(1), 3, 3, 3}) / std::sqrt(27.0 * static_cast<double>(x.size(1)));
  const Tensors inputs = {x, weight, at::randn({outputs})};
  SCOPED_TRACE(testing::Message() << x.sizes() << " " << x.scalar_type());
  expect_agreement([](const Tensors& in) { return Tensors{upsampled_conv3d(in[0], in[1], in[2])}; },
                   [](const Tensors& in) { return Tensors{upsampled_conv3d_plain(in[0], in[1], in[2])}; }, inputs, tolerance,
                   outputs == 20);  // with strided gradients
}

TEST(UpsampledConvolution, IsTransposedOnTheCpuAlone) {
  const Sizes sizes{1, 2, 3, 2, 4};
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    EXPECT_TRUE(transposes_upsampled(at::empty(sizes, type)));
    EXPECT_FALSE(transposes_upsampled(at::empty(sizes, at::TensorOptions(type).device(at::kMeta))));
  }
  EXPECT_FALSE(transposes_upsampled(at::empty({0, 2, 3, 2, 4})));
}

TEST(UpsampledConvolution, AgreesWithAten) {
  at::manual_seed(3);
  const std::vector<Sizes> shapes = {{1, 1, 1, 1, 1}, {2, 3, 1, 2, 5}, {1, 8, 4, 3, 1}, {2, 16, 3, 4, 5}, {1, 33, 4, 4, 4}};
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    for (const auto layout : kLayouts) {
      for (const Sizes& sizes : shapes) {
        for (const std::int64_t outputs : {1, 20}) {
          if (type == at::kBFloat16 && (outputs == 1 || sizes[4] == 1))
            continue;  // the sums cancel; nn/ handles one voxel separately
          const at::Tensor x = at::randn(sizes).to(type).contiguous(layout);
          expect_upsampled(x, outputs, type == at::kDouble ? 1e-6 : type == at::kFloat ? 1e-5 : 3e-2);
          const at::Tensor y = upsampled_conv3d(x, at::randn({outputs, sizes[1], 3, 3, 3}), at::randn({outputs}));
          EXPECT_EQ(y.sizes(), (Sizes{sizes[0], outputs, 2 * sizes[2], 2 * sizes[3], 2 * sizes[4]}));
          EXPECT_TRUE(y.is_contiguous(x.is_contiguous() ? at::MemoryFormat::Contiguous : layout));
        }
      }
    }
  }
  EXPECT_EQ(upsampled_conv3d(at::randn({0, 2, 3, 3, 3}), at::randn({4, 2, 3, 3, 3}), at::randn({4})).sizes(),
            (Sizes{0, 4, 6, 6, 6}));
}

// Large enough for the computation by planes, in one volume and in several. Computed as a whole, the last three are wrong or
// never end on AMX.
TEST(ConvolutionWeights, OfPlanesAreThoseOfTheWhole) {
  at::manual_seed(4);
  for (const auto& sizes : std::vector<Sizes>{
           {1, 16, 20, 32, 33}, {2, 24, 13, 32, 32}, {1, 32, 2, 128, 65}, {1, 8, 1, 512, 128}, {1, 32, 1, 192, 65}}) {
    for (const auto layout : kLayouts) {
      SCOPED_TRACE(testing::Message() << sizes << " " << layout);
      const at::Tensor x = at::randn(sizes).to(at::kBFloat16).contiguous(layout);
      const at::Tensor gradient = at::randn({sizes[0], 20, sizes[2], sizes[3], sizes[4]}).to(at::kBFloat16).contiguous(layout);
      const at::Tensor weight = at::randn({20, sizes[1], 3, 3, 3}).to(at::kBFloat16);
      ASSERT_GT(static_cast<std::int64_t>(x.nbytes() + gradient.nbytes()), kWholeBytes);
      const auto found = convolution_weights(x, gradient, weight, true, true);
      const auto exact = convolution_weights(x.to(at::kDouble), gradient.to(at::kDouble), weight.to(at::kDouble), true, true);
      EXPECT_LT(relative_error(found.weight, exact.weight), 5e-3);
      EXPECT_LT(relative_error(found.bias, exact.bias), 5e-3);
      EXPECT_EQ(found.weight.scalar_type(), at::kFloat);
      const CutAsInBf16 census;
      const auto cut = convolution_weights(x.to(at::kFloat), gradient.to(at::kFloat), weight.to(at::kFloat), true, true);
      EXPECT_LT(relative_error(cut.weight, exact.weight), 1e-4);
      EXPECT_LT(relative_error(cut.bias, exact.bias), 1e-4);
      EXPECT_FALSE(convolution_weights(x, gradient, weight, false, true).weight.defined());
      EXPECT_FALSE(convolution_weights(x, gradient, weight, true, false).bias.defined());
    }
  }
}

TEST(UpsampledConvolution, ComputesNoGradientThatNobodyWants) {
  const at::Tensor x = at::randn({1, 2, 3, 3, 3}), weight = at::randn({4, 2, 3, 3, 3}).requires_grad_();
  upsampled_conv3d(x, weight, at::randn({4})).sum().backward();
  EXPECT_FALSE(x.grad().defined());
  EXPECT_TRUE(weight.grad().defined());
}

}  // namespace
}  // namespace millrace::kernels
