#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <thread>

#include "millrace/kernels/detail/test_support.h"
#include "millrace/kernels/dropout_bits.h"
#include "millrace/kernels/plain.h"

namespace millrace::kernels {
namespace {

constexpr std::uint64_t kDropoutKey = 0x0123456789ABCDEFULL;

class DropoutKernels : public EachTable {};
INSTANTIATE_TEST_SUITE_P(Tables, DropoutKernels,
                         testing::ValuesIn(detail::usable_tables().begin(), detail::usable_tables().end()), table_name);

TEST(DropoutBits, FollowTheWrittenMap) {
  // Element 300: group 2, position 44, so block 16 * 2 + (44 % 32) / 2 = 38, word 1, lower half.
  const PhiloxBlock block = philox4x32({38, 0, 0, 0}, kDropoutKey);
  const std::uint32_t half = block[1] & 0xFFFFU;
  EXPECT_TRUE(dropout_keeps(kDropoutKey, half, 300));
  EXPECT_FALSE(dropout_keeps(kDropoutKey, half + 1, 300));
  EXPECT_TRUE(dropout_keeps(kDropoutKey, block[1] >> 16U, 301));
  // Beyond 2^35 elements the block index needs its upper word.
  const std::uint64_t far = (std::uint64_t{1} << 37U) + 96;
  const PhiloxBlock far_block = philox4x32({0, 4, 0, 0}, kDropoutKey);
  EXPECT_TRUE(dropout_keeps(kDropoutKey, far_block[3] & 0xFFFFU, far));
  EXPECT_FALSE(dropout_keeps(kDropoutKey, (far_block[3] & 0xFFFFU) + 1, far));
}

TEST(DropoutBits, ThresholdAndScaleAtTheEnds) {
  EXPECT_EQ(dropout_threshold(0.0), 0U);
  EXPECT_EQ(dropout_threshold(-1.0), 0U);
  EXPECT_EQ(dropout_threshold(0.1), 6554U);
  EXPECT_EQ(dropout_threshold(1.0), 65536U);
  EXPECT_EQ(dropout_scale(1.0), 0.0F);
  EXPECT_EQ(dropout_scale(0.5), 2.0F);
}

TEST_P(DropoutKernels, KeepBitsFarOutEqualTheReference) {
  const detail::Keep keep{.key = kDropoutKey, .threshold = 20000, .scale = 1.0F};
  for (const std::int64_t group : {std::int64_t{0}, std::int64_t{1} << 28, (std::int64_t{1} << 30) + 5}) {
    std::array<std::uint8_t, 32> bits{};
    GetParam()->keep_bits(keep, group, 2, bits.data());
    for (std::uint64_t i = 0; i < 256; ++i) {
      const bool kept = ((bits[i / 8] >> (i % 8)) & 1) != 0;
      ASSERT_EQ(kept, dropout_keeps(kDropoutKey, 20000, static_cast<std::uint64_t>(group) * 128 + i)) << group << " " << i;
    }
  }
}

TEST_P(DropoutKernels, EqualTheScalarReferenceToTheBitForAnyCount) {
  for (const std::int64_t n : {0, 1, 7, 15, 16, 17, 127, 128, 129, 1000, 4099}) {
    for (const double p : {1e-6, 0.1, 0.5, 0.999, 1.0}) {
      for (const auto type : {at::kFloat, at::kBFloat16}) {
        const at::Tensor x = at::randn({n}).to(type);
        const at::Tensor mask = dropout_mask_reference({n}, {p, kDropoutKey});
        EXPECT_TRUE(equal_bits(dropout(x, {p, kDropoutKey}), dropout_with_mask(x, mask, p))) << n << " " << p << " " << type;
        EXPECT_TRUE(p == 1.0 || equal_bits(dropout_mask({n}, {p, kDropoutKey}), mask));
      }
    }
  }
}

// Rows 3, 4, 5, ... of a larger tensor keep the same elements as in the larger tensor, for any first element.
TEST_P(DropoutKernels, APartOfATensorDropsWhatTheWholeDropsThere) {
  for (const std::int64_t width : {1, 16, 77, 128, 384}) {
    const at::Tensor x = at::randn({9, width});
    const at::Tensor residual = at::randn({9, width});
    const at::Tensor scale = at::ones({width});
    const Dropout whole{.p = 0.3, .key = kDropoutKey, .first = 0};
    const at::Tensor rows = at::ones({9, 4, 2, 8});
    for (const std::int64_t first : {3, 4}) {
      const Dropout part{.p = 0.3, .key = kDropoutKey, .first = first * width};
      const auto cut = [&](const at::Tensor& t) { return t.narrow(0, first, 9 - first); };
      EXPECT_TRUE(equal_bits(dropout(cut(x), part), cut(dropout(x, whole)))) << width;
      EXPECT_TRUE(equal_bits(gelu_dropout(cut(x), part), cut(gelu_dropout(x, whole)))) << width;
      EXPECT_TRUE(equal_bits(dropout_add_layer_norm(cut(x), cut(residual), scale, scale, 1e-5, part).second,
                             cut(dropout_add_layer_norm(x, residual, scale, scale, 1e-5, whole).second)))
          << width;
      EXPECT_TRUE(equal_bits(dropout_mask_reference({9 - first, width}, part), cut(dropout_mask_reference({9, width}, whole))));
      const Dropout weights{.p = 0.3, .key = kDropoutKey, .first = first * 2 * 4 * 4};
      EXPECT_TRUE(
          equal_bits(causal_attention(cut(rows), cut(rows), cut(rows), weights), cut(causal_attention(rows, rows, rows, whole))));
    }
  }
}

// Some rows of a larger tensor, in another order, drop the same elements as in the larger tensor, forward and backward.
TEST_P(DropoutKernels, RowsInAnyOrderDropWhatTheyDropInTheWhole) {
  const std::vector<IndexRun> rows = {{5, 2}, {0, 1}, {2, 1}, {7, 2}};
  std::vector<std::int64_t> numbers;
  for (const IndexRun& run : rows)
    for (std::int64_t i = 0; i < run.count; ++i) numbers.push_back(run.first + i);
  const at::Tensor index = at::tensor(numbers);
  const auto taken = [&](const at::Tensor& x) { return x.index_select(0, index).detach().requires_grad_(); };
  const auto site = [&](std::int64_t width) {
    Dropout some{.p = 0.3, .key = kDropoutKey};
    for (const IndexRun& run : rows) some.runs.push_back({run.first * width, run.count * width});
    return some;
  };
  using Inputs = std::vector<at::Tensor>;
  using Call = std::function<at::Tensor(const Inputs&, const Dropout&)>;
  const auto expect_rows_of_the_whole = [&](const Inputs& inputs, std::int64_t width, const std::string& what, const Call& call) {
    Inputs whole, some;
    for (const at::Tensor& x : inputs) {
      whole.push_back(x.detach().clone().requires_grad_());
      some.push_back(taken(x));
    }
    const at::Tensor all = call(whole, {.p = 0.3, .key = kDropoutKey}), part = call(some, site(width));
    EXPECT_TRUE(equal_bits(part, all.index_select(0, index))) << what << " " << width;
    all.mul(all.detach()).sum().backward();
    part.mul(part.detach()).sum().backward();
    for (std::size_t i = 0; i < inputs.size(); ++i)
      EXPECT_TRUE(equal_bits(some[i].grad(), whole[i].grad().index_select(0, index))) << what << " " << width << " input " << i;
  };
  for (const std::int64_t width : {1, 16, 77, 128, 384}) {
    const at::Tensor x = at::randn({9, width}), residual = at::randn({9, width}), scale = at::ones({width});
    const auto mask = [&](const Inputs& in, const Dropout& d) {
      return dropout_with_mask(in[0], dropout_mask(in[0].sizes(), d), d.p);
    };
    const auto reference = [&](const Inputs& in, const Dropout& d) {
      return dropout_with_mask(in[0], dropout_mask_reference(in[0].sizes(), d), d.p);
    };
    expect_rows_of_the_whole({x}, width, "dropout", [](const Inputs& in, const Dropout& d) { return dropout(in[0], d); });
    expect_rows_of_the_whole({x}, width, "mask", mask);
    expect_rows_of_the_whole({x}, width, "reference", reference);
    expect_rows_of_the_whole({x}, width, "gelu", [](const Inputs& in, const Dropout& d) { return gelu_dropout(in[0], d); });
    expect_rows_of_the_whole({x, residual}, width, "add",
                             [](const Inputs& in, const Dropout& d) { return dropout_add(in[0], in[1], d); });
    expect_rows_of_the_whole({x, residual}, width, "norm", [&](const Inputs& in, const Dropout& d) {
      return dropout_add_layer_norm(in[0], in[1], scale, scale, 1e-5, d).second;
    });
  }
  const at::Tensor q = at::randn({9, 5, 2, 8}), k = at::randn({9, 5, 2, 8}), v = at::randn({9, 5, 2, 8});
  expect_rows_of_the_whole({q, k, v}, 2 * 5 * 5, "attention",
                           [](const Inputs& in, const Dropout& d) { return causal_attention(in[0], in[1], in[2], d); });
}

TEST_P(DropoutKernels, BackwardUsesTheForwardMask) {
  const at::Tensor x = at::randn({5, 77}).requires_grad_();
  const at::Tensor gradient = strided_randn({5, 77}, at::kFloat);
  dropout(x, {0.3, kDropoutKey}).backward(gradient);
  EXPECT_TRUE(equal_bits(x.grad(), dropout_with_mask(gradient, dropout_mask_reference({5, 77}, {0.3, kDropoutKey}), 0.3)));
}

TEST_P(DropoutKernels, AddsAResidualOfAnotherType) {
  const at::Tensor mask = dropout_mask_reference({3, 50}, {0.2, kDropoutKey});
  for (const auto x_type : {at::kFloat, at::kBFloat16}) {
    for (const auto residual_type : {at::kFloat, at::kBFloat16}) {
      const at::Tensor x = strided_randn({3, 50}, x_type).detach().requires_grad_();
      const at::Tensor residual = at::randn({3, 50}).to(residual_type).requires_grad_();
      const at::Tensor y = dropout_add(x, residual, {0.2, kDropoutKey});
      const at::Tensor wide = residual.to(at::kFloat) + dropout_with_mask(x.to(at::kFloat), mask, 0.2);
      EXPECT_TRUE(equal_bits(y, wide.to(residual_type))) << x_type << " " << residual_type;
      const at::Tensor gradient = at::randn({3, 50}).to(residual_type);
      y.backward(gradient);
      EXPECT_TRUE(equal_bits(residual.grad(), gradient));
      EXPECT_TRUE(equal_bits(x.grad(), dropout_with_mask(gradient.to(at::kFloat), mask, 0.2).to(x_type)));
    }
  }
}

TEST_P(DropoutKernels, ProbabilityZeroIsTheInput) {
  const at::Tensor x = at::randn({40});
  EXPECT_TRUE(dropout(x, {}).is_same(x));
  EXPECT_TRUE(equal_bits(dropout_add(x, x, {}), x + x));
}

TEST_P(DropoutKernels, TakeWhatTheyHaveNoKernelForThroughAten) {
  const at::Tensor x = at::randn({6, 30}, at::kDouble).requires_grad_();
  const at::Tensor mask = dropout_mask_reference({6, 30}, {0.4, kDropoutKey});
  const at::Tensor y = dropout(x, {0.4, kDropoutKey});
  EXPECT_TRUE(equal_bits(y, dropout_with_mask(x, mask, 0.4)));
  y.sum().backward();
  EXPECT_TRUE(equal_bits(x.grad().ne(0), mask));
  const at::Tensor row = at::randn({30});
  EXPECT_TRUE(dropout_add(row.to(at::kBFloat16), at::zeros({6, 30}), {0.4, kDropoutKey}).sizes().equals({6, 30}));  // broadcasts
}

TEST_P(DropoutKernels, GeluWithDropoutAgreesWithAten) {
  for (const std::int64_t n : {1, 17, 129, 3000}) {
    for (const double p : {0.0, 0.25}) {
      const at::Tensor mask = dropout_mask_reference({n}, {p, kDropoutKey});
      const auto kernel = [&](const Tensors& in) { return Tensors{gelu_dropout(in[0], {p, kDropoutKey})}; };
      const auto reference = [&](const Tensors& in) { return Tensors{dropout_with_mask(at::gelu(in[0]), mask, p)}; };
      expect_agreement(kernel, reference, {at::randn({n}) * 3}, 2e-6, true);
      expect_agreement(kernel, reference, {(at::randn({n}) * 3).to(at::kBFloat16)}, 8e-3);
    }
  }
  const at::Tensor extremes = at::arange(-40.0, 40.0, 0.37, at::kFloat);
  EXPECT_LT(relative_error(gelu_dropout(extremes, {}), at::gelu(extremes.to(at::kDouble))), 1e-6);
  const float inf = std::numeric_limits<float>::infinity();
  const at::Tensor ends = gelu_dropout(at::tensor({3e38F, inf, std::numeric_limits<float>::quiet_NaN()}), {});
  EXPECT_EQ(ends[0].item<float>(), 3e38F);
  EXPECT_EQ(ends[1].item<float>(), inf);
  EXPECT_TRUE(ends[2].isnan().item<bool>());
}

TEST_P(DropoutKernels, NeedNoGraph) {
  const at::Tensor x = at::randn({100}).requires_grad_();
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(dropout(x, {0.5, kDropoutKey}).requires_grad());
  EXPECT_FALSE(gelu_dropout(x, {0.5, kDropoutKey}).requires_grad());
}

TEST_P(DropoutKernels, GiveTheSameBitsForAnyThreadCount) {
  const at::Tensor x = at::randn({100003});
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor one = dropout(x, {0.1, kDropoutKey});
  for (const int n : {2, 3}) {
    at::set_num_threads(n);
    EXPECT_TRUE(equal_bits(dropout(x, {0.1, kDropoutKey}), one));
  }
  at::set_num_threads(threads);
}

TEST(DropoutStatistics, KeepRateAndNeighboursAreIndependent) {
  constexpr std::int64_t kCount = std::int64_t{1} << 22;
  const at::Tensor kept = dropout(at::ones({kCount}), {0.1, kDropoutKey}).ne(0).to(at::kFloat);
  const double deviation = std::sqrt(0.09 / kCount);
  EXPECT_NEAR(kept.mean().item<double>(), 0.9, 4 * deviation + 1e-5);  // p is a multiple of 2^-16
  const at::Tensor centred = kept - 0.9;
  for (const std::int64_t lag : {1, 2, 16, 31, 32, 64, 128, 384, 2048}) {
    const at::Tensor product = centred.narrow(0, 0, kCount - lag) * centred.narrow(0, lag, kCount - lag);
    EXPECT_NEAR(product.mean().item<double>() / 0.09, 0.0, 5.0 / std::sqrt(static_cast<double>(kCount))) << "lag " << lag;
  }
  const at::Tensor other = dropout(at::ones({kCount}), {0.1, kDropoutKey + 1}).ne(0).to(at::kFloat) - 0.9;
  EXPECT_NEAR((centred * other).mean().item<double>() / 0.09, 0.0, 5.0 / std::sqrt(static_cast<double>(kCount)));
}

// Older versions of LibTorch returned wrong numbers here. The plain path needs the right ones.
TEST(Aten, GeluBackwardTakesANonContiguousGradient) {
  const at::Tensor x = at::randn({64, 48}).requires_grad_();
  const at::Tensor wide = x.detach().to(at::kDouble).requires_grad_();
  const at::Tensor gradient = at::randn({48, 64}).t();
  at::gelu(x).backward(gradient);
  at::gelu(wide).backward(gradient.to(at::kDouble));
  EXPECT_LT(relative_error(x.grad(), wide.grad()), 1e-6);
}

}  // namespace
}  // namespace millrace::kernels
