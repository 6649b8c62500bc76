#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>

#include <cmath>

#include "millrace/kernels/detail/test_support.h"
#include "millrace/kernels/dropout_bits.h"
#include "millrace/kernels/plain.h"

namespace millrace::kernels {
namespace {

constexpr std::uint64_t kAttentionKey = 0xFEDCBA9876543210ULL;

class AttentionKernels : public EachTable {};
INSTANTIATE_TEST_SUITE_P(Tables, AttentionKernels,
                         testing::ValuesIn(detail::usable_tables().begin(), detail::usable_tables().end()), table_name);

struct Shape {
  std::int64_t batch, rows, heads, size;
};

at::Tensor mask_of(const Shape& s, double p) {
  return dropout_mask_reference({s.batch, s.heads, s.rows, s.rows}, {p, kAttentionKey});
}

TEST_P(AttentionKernels, AgreeWithAtenForAnyShape) {
  const std::vector<Shape> shapes{{1, 1, 1, 1},  {2, 7, 3, 40},  {1, 17, 2, 16},  {2, 129, 1, 64}, {1, 70, 2, 256},
                                  {1, 33, 2, 8}, {3, 4, 1, 100}, {1, 200, 1, 33}, {1, 300, 2, 32}, {1, 128, 1, 272}};
  for (const Shape& s : shapes) {
    for (const double p : {0.0, 0.2}) {
      const at::Tensor keep = p > 0.0 ? mask_of(s, p) : at::Tensor();
      const auto kernel = [&](const Tensors& in) { return Tensors{causal_attention(in[0], in[1], in[2], {p, kAttentionKey})}; };
      const auto reference = [&](const Tensors& in) { return Tensors{causal_attention_with_mask(in[0], in[1], in[2], keep, p)}; };
      const auto input = [&](at::ScalarType type) { return at::randn({s.batch, s.rows, s.heads, s.size}).to(type); };
      SCOPED_TRACE(testing::Message() << s.batch << " " << s.rows << " " << s.heads << " " << s.size << " p " << p);
      expect_agreement(kernel, reference, {input(at::kFloat), input(at::kFloat), input(at::kFloat)}, 1e-5);
      expect_agreement(kernel, reference, {input(at::kBFloat16), input(at::kBFloat16), input(at::kBFloat16)}, 2.5e-2);
    }
  }
}

TEST_P(AttentionKernels, TakeStridedInputsAndGradients) {
  const Shape s{2, 21, 2, 24};
  const at::Tensor keep = mask_of(s, 0.1);
  const auto kernel = [&](const Tensors& in) {
    return Tensors{causal_attention(in[0], in[1], in[2], {0.1, kAttentionKey}, 0.3)};
  };
  const auto reference = [&](const Tensors& in) {
    return Tensors{causal_attention_with_mask(in[0], in[1], in[2], keep, 0.1, 0.3)};
  };
  const at::Tensor heads_first = at::randn({2, 2, 21, 24}).transpose(1, 2);
  const at::Tensor columns = at::randn({2, 21, 24, 2}).transpose(2, 3);
  expect_agreement(kernel, reference, {heads_first, strided_randn({2, 21, 2, 24}, at::kFloat), columns}, 1e-5, true);
}

TEST_P(AttentionKernels, PackedEqualsThreeTensorsToTheBit) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor packed = at::randn({2, 37, 3 * 2 * 16}).to(type).requires_grad_();
    const at::Tensor apart = packed.detach().clone().requires_grad_();
    const at::Tensor five = apart.view({2, 37, 3, 2, 16});
    const at::Tensor out = causal_attention_packed(packed, 2, {0.1, kAttentionKey});
    const at::Tensor expected = causal_attention(five.select(2, 0), five.select(2, 1), five.select(2, 2), {0.1, kAttentionKey});
    EXPECT_TRUE(equal_bits(out, expected));
    const at::Tensor gradient = at::randn(out.sizes()).to(type);
    out.backward(gradient);
    expected.backward(gradient);
    EXPECT_TRUE(equal_bits(packed.grad(), apart.grad()));
  }
}

TEST_P(AttentionKernels, WithoutAMaskAgreeWithAtenForAnyShape) {
  const std::vector<Shape> shapes{{1, 1, 1, 1},  {2, 7, 3, 40},  {1, 17, 2, 16},  {8, 65, 3, 64},  {1, 70, 2, 256},
                                  {1, 33, 2, 8}, {3, 4, 1, 100}, {1, 200, 1, 33}, {1, 300, 2, 32}, {1, 128, 1, 272}};
  for (const Shape& s : shapes) {
    const auto kernel = [&](const Tensors& in) { return Tensors{full_attention_packed(in[0], s.heads)}; };
    const auto reference = [&](const Tensors& in) {
      const at::Tensor five = in[0].view({s.batch, s.rows, 3, s.heads, s.size});
      const auto part = [&](std::int64_t i) { return five.select(2, i).transpose(1, 2); };
      const at::Tensor weights = at::softmax(at::matmul(part(0), part(1).mT()) / std::sqrt(static_cast<double>(s.size)), -1);
      return Tensors{at::matmul(weights, part(2)).transpose(1, 2)};
    };
    SCOPED_TRACE(testing::Message() << s.batch << " " << s.rows << " " << s.heads << " " << s.size);
    const at::Tensor x = at::randn({s.batch, s.rows, 3 * s.heads * s.size});
    expect_agreement(kernel, reference, {x}, 1e-5);
    expect_agreement(kernel, reference, {x.to(at::kBFloat16)}, 2.5e-2);
  }
}

TEST_P(AttentionKernels, AreCausal) {
  const at::Tensor q = at::randn({1, 90, 1, 32});
  const at::Tensor k = at::randn({1, 90, 1, 32});
  const at::Tensor v = at::randn({1, 90, 1, 32});
  const at::Tensor before = causal_attention(q, k, v, {0.1, kAttentionKey});
  k.narrow(1, 50, 40).fill_(1e4);
  v.narrow(1, 50, 40).fill_(-7.0);
  const at::Tensor after = causal_attention(q, k, v, {0.1, kAttentionKey});
  EXPECT_TRUE(equal_bits(before.narrow(1, 0, 50), after.narrow(1, 0, 50)));
  EXPECT_FALSE(equal_bits(before, after));
}

TEST_P(AttentionKernels, TakeEmptyBatches) {
  for (const Shape& s : std::vector<Shape>{{0, 5, 2, 16}, {2, 0, 2, 16}}) {
    const at::Tensor q = at::randn({s.batch, s.rows, s.heads, s.size}).requires_grad_();
    const at::Tensor out = causal_attention(q, q, q, {0.1, kAttentionKey});
    EXPECT_TRUE(out.sizes().equals(q.sizes()));
    out.sum().backward();
    EXPECT_TRUE(q.grad().sizes().equals(q.sizes()));
  }
}

TEST_P(AttentionKernels, SlopeWithDropoutEqualsTheGradient) {
  const Tensors in{at::randn({2, 40, 2, 32}), at::randn({2, 40, 2, 32}), at::randn({2, 40, 2, 32})};
  const at::Tensor weight = at::randn({2, 40, 2, 32}, at::kDouble);
  const auto value = [&](const Tensors& x) {
    return (causal_attention(x[0], x[1], x[2], {0.3, kAttentionKey}).to(at::kDouble) * weight).sum();
  };
  for (std::size_t i = 0; i < 3; ++i) {
    Tensors leaves{in[0].clone(), in[1].clone(), in[2].clone()};
    leaves[i].requires_grad_();
    value(leaves).backward();
    const at::Tensor gradient = leaves[i].grad();
    const at::Tensor direction = gradient / gradient.norm();
    const at::NoGradGuard no_grad;
    Tensors plus = leaves;
    Tensors minus = leaves;
    plus[i] = leaves[i] + direction * 5e-3;
    minus[i] = leaves[i] - direction * 5e-3;
    const double slope = ((value(plus) - value(minus)) / 1e-2).item<double>();
    EXPECT_NEAR(slope / gradient.norm().item<double>(), 1.0, 2e-3) << "input " << i;
  }
}

TEST_P(AttentionKernels, PassNanOn) {
  const at::Tensor q = at::randn({1, 8, 1, 16});
  q.select(1, 5).fill_(std::numeric_limits<float>::quiet_NaN());
  const at::Tensor finite = causal_attention(q, q, q, {}).isfinite().all(-1).flatten();
  for (std::int64_t row = 5; row < 8; ++row) EXPECT_FALSE(finite[row].item<bool>()) << row;
  EXPECT_TRUE(finite[0].item<bool>());
}

// The result equals ATen's. With even weights, an overflow of a product in fp32 would stay hidden.
TEST_P(AttentionKernels, ScoresThatOverflowBelowAreNan) {
  const at::Tensor q = at::full({1, 8, 1, 16}, 1e30), v = at::ones({1, 8, 1, 16});
  const at::Tensor out = causal_attention(q, q * -1.0, v, {}), of_aten = causal_attention_with_mask(q, q * -1.0, v, {}, 0.0);
  EXPECT_TRUE(of_aten.isnan().all().item<bool>());
  EXPECT_TRUE(out.isnan().all().item<bool>());
}

TEST_P(AttentionKernels, GiveTheSameBitsForAnyThreadCount) {
  const int threads = at::get_num_threads();
  const at::Tensor x = at::randn({3, 50, 3 * 5 * 16});
  Tensors results;
  for (const int n : {1, 2, 3}) {
    at::set_num_threads(n);
    const at::Tensor packed = x.clone().requires_grad_();
    const at::Tensor out = causal_attention_packed(packed, 5, {0.1, kAttentionKey});
    out.square().sum().backward();
    results.push_back(at::cat({out.detach().flatten(), packed.grad().flatten()}));
  }
  at::set_num_threads(threads);
  EXPECT_TRUE(equal_bits(results[0], results[1]));
  EXPECT_TRUE(equal_bits(results[0], results[2]));
}

TEST_P(AttentionKernels, LargeScoresDoNotOverflow) {
  const at::Tensor q = at::randn({1, 20, 1, 16}) * 100;
  EXPECT_LT(relative_error(causal_attention(q, q, q, {}),
                           causal_attention_with_mask(q.to(at::kDouble), q.to(at::kDouble), q.to(at::kDouble), {}, 0.0)),
            1e-5);
}

TEST(Attention, TakesFp64ThroughAten) {
  const at::Tensor q = at::randn({1, 9, 2, 8}, at::kDouble);
  const at::Tensor expected =
      causal_attention_with_mask(q, q, q, dropout_mask_reference({1, 2, 9, 9}, {0.2, kAttentionKey}), 0.2);
  EXPECT_TRUE(equal_bits(causal_attention(q, q, q, {0.2, kAttentionKey}), expected));
}

TEST(Attention, MeanWithDropoutIsTheMeanWithout) {
  const at::Tensor q = at::randn({8, 128, 4, 16});
  const at::Tensor v = at::ones({8, 128, 4, 16});
  EXPECT_NEAR(causal_attention(q, q, v, {0.1, kAttentionKey}).mean().item<double>(), 1.0, 5e-3);
}

TEST(Attention, RefusesShapesThatDoNotBelongTogether) {
  const at::Tensor q = at::randn({1, 9, 2, 8});
  EXPECT_THROW(causal_attention(q, q.narrow(1, 0, 3), q, {}), c10::Error);
  EXPECT_THROW(causal_attention_packed(at::randn({1, 9, 40}), 3, {}), c10::Error);
}

}  // namespace
}  // namespace millrace::kernels
