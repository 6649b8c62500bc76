// Compares parts of decoders with ATen in fp64: values and gradients, for every remainder of a vector.
#include "millrace/kernels/decoder.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <functional>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/kernels/detail/test_support.h"
#include "millrace/kernels/dropout_bits.h"
#include "millrace/kernels/lora_linear.h"
#include "millrace/kernels/weight_cache.h"

namespace millrace::kernels {
namespace {

class Decoders : public EachTable {};
INSTANTIATE_TEST_SUITE_P(Tables, Decoders, testing::ValuesIn(detail::usable_tables().begin(), detail::usable_tables().end()),
                         table_name);

constexpr double kRmsEpsilon = 1e-5;

at::Tensor rms_formula(const at::Tensor& x, const at::Tensor& weight) {
  return x * (x.square().mean(-1, true) + kRmsEpsilon).rsqrt() * weight;
}

TEST_P(Decoders, RmsRowsAgreeWithAten) {
  for (const std::int64_t width : {2, 7, 16, 17, 129, 256}) {
    for (const auto in : {at::kFloat, at::kBFloat16}) {
      for (const auto out : {at::kFloat, at::kBFloat16}) {
        SCOPED_TRACE(testing::Message() << width << " " << in << " " << out);
        const double tolerance = in == at::kFloat && out == at::kFloat ? 2e-5 : 1e-2;
        const Tensors inputs{strided_randn({70, width}, in), at::randn({width}) + 1.5};
        expect_agreement([&](const Tensors& x) { return Tensors{rms_rows(x[0], x[1], kRmsEpsilon, out)}; },
                         [](const Tensors& x) { return Tensors{rms_formula(x[0], x[1])}; }, inputs, tolerance, true);
        const auto both = [](const Tensors& x) {
          const auto [sum, y] = add_rms_rows(x[0], x[1], x[2], kRmsEpsilon);
          return Tensors{sum, y};
        };
        const auto formula = [](const Tensors& x) { return Tensors{x[0] + x[1], rms_formula(x[0] + x[1], x[2])}; };
        expect_agreement(both, formula, {strided_randn({70, width}, out), at::randn({70, width}).to(in), inputs[1]}, tolerance,
                         true);
      }
    }
  }
}

TEST_P(Decoders, AFrozenNormHasNoGradientAndOthersAreTheSame) {
  const at::Tensor x = at::randn({9, 40}), branch = at::randn({9, 40}).to(at::kBFloat16), weight = at::randn({40});
  const auto gradients = [&](bool frozen) {
    Tensors leaves{branch.clone().requires_grad_(), x.clone().requires_grad_(), weight.clone().requires_grad_(!frozen)};
    const auto [sum, y] = add_rms_rows(leaves[0], leaves[1], leaves[2], kRmsEpsilon);
    (sum.sum() * 0.3 + y.to(at::kFloat).square().sum()).backward();
    EXPECT_EQ(leaves[2].grad().defined(), !frozen);
    return Tensors{leaves[0].grad(), leaves[1].grad()};
  };
  const Tensors with = gradients(false), without = gradients(true);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(equal_bits(with[i], without[i]));
}

TEST_P(Decoders, OnlyTheSumMayBeRead) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor branch = at::randn({3, 8}).to(type).requires_grad_(), x = at::randn({3, 8}).requires_grad_();
    (add_rms_rows(branch, x, at::ones({8}), kRmsEpsilon).first * 2).sum().backward();
    EXPECT_TRUE(branch.grad().eq(2).all().item<bool>());
    EXPECT_TRUE(x.grad().eq(2).all().item<bool>());
  }
}

TEST_P(Decoders, SwigluAgreesWithAten) {
  for (const std::int64_t width : {1, 7, 16, 43, 688}) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(testing::Message() << width << " " << type);
      const auto formula = [](const Tensors& x) {
        const auto halves = x[0].chunk(2, -1);
        return Tensors{at::silu(halves[0]) * halves[1]};
      };
      expect_agreement([](const Tensors& x) { return Tensors{swiglu(x[0])}; }, formula,
                       {strided_randn({5, 3, 2 * width}, type) * 3}, type == at::kFloat ? 2e-5 : 1e-2, true);
    }
  }
}

TEST_P(Decoders, SwigluLinearIsSwigluAndAProduct) {
  for (const std::int64_t rows : {1, 60, 1300}) {  // 1300 rows are computed in parts
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(testing::Message() << rows << " " << type);
      const at::Tensor weight = (at::randn({24, 688}) / 25).to(type);
      const auto formula = [&](const Tensors& x) {
        const auto halves = x[0].chunk(2, -1);
        return Tensors{(at::silu(halves[0]) * halves[1]).matmul(weight.to(x[0].scalar_type()).t())};
      };
      for (const bool leaf : {true, false}) {
        const auto kernel = [&](const Tensors& x) { return Tensors{swiglu_linear(leaf ? x[0] : x[0] * 1.0, weight)}; };
        expect_agreement(kernel, formula, {strided_randn({1, rows, 2 * 688}, type)}, type == at::kFloat ? 2e-5 : 2e-2, true);
      }
    }
  }
}

// A norm may keep its result, which then must stay.
TEST_P(Decoders, ASumWithTheResultOfANormHasTheRightGradients) {
  const auto kernel = [](const Tensors& x) {
    const auto [sum, y] = add_rms_rows(rms_rows(x[0], x[2], kRmsEpsilon, at::kFloat), x[1], x[3], kRmsEpsilon);
    return Tensors{sum, y};
  };
  const auto formula = [](const Tensors& x) {
    const at::Tensor sum = rms_formula(x[0], x[2]) + x[1];
    return Tensors{sum, rms_formula(sum, x[3])};
  };
  const Tensors inputs{at::randn({9, 40}), at::randn({9, 40}), at::randn({40}) + 1.5, at::randn({40}) + 1.5};
  expect_agreement(kernel, formula, inputs, 2e-5);
}

TEST_P(Decoders, AQueryThatANormKeptIsNotTurnedInPlace) {
  const at::Tensor cos = at::full({3, 4}, 0.6), sin = at::full({3, 4}, 0.8), positions = at::tensor({1, 2}, at::kLong);
  const at::Tensor q = at::randn({2, 1, 8}), kv = at::randn({2, 3, 16}), weight = at::ones({8});
  const auto gradient = [&](bool copies) {
    const at::Tensor leaf = q.clone().requires_grad_();
    const at::Tensor query = rms_rows(leaf, weight, kRmsEpsilon, at::kFloat);
    rotary_attention_at(copies ? query.clone() : query, kv.clone(), positions, cos, sin, 1).sum().backward();
    return leaf.grad();
  };
  EXPECT_TRUE(equal_bits(gradient(true), gradient(false)));
}

// tanh keeps its result for its own backward pass.
TEST_P(Decoders, WhatABackwardPassKeptIsNotOverwrittenInSilence) {
  const auto refuses = [](at::IntArrayRef sizes, const std::function<at::Tensor(const at::Tensor&)>& part) {
    const at::Tensor x = at::randn(sizes).requires_grad_();
    const at::Tensor out = part(x.tanh());
    EXPECT_THROW(out.sum().backward(), c10::Error) << sizes;
  };
  refuses({5, 16}, [](const at::Tensor& made) {
    return add_rms_rows(made, at::ones({5, 16}), at::ones({16}), kRmsEpsilon).first;
  });
  refuses({5, 32}, [](const at::Tensor& made) { return swiglu(made); });
  refuses({2, 3, 12}, [](const at::Tensor& made) {
    return rotary_attention_packed(made, at::ones({3, 2}), at::zeros({3, 2}), 1);
  });
  // A part of a larger tensor is overwritten alone, so the other parts can still be used, and a view keeps its history.
  const at::Tensor all = at::randn({4, 32}).requires_grad_(), both = all * 1.0;
  (swiglu(both.narrow(0, 0, 2)).sum() + swiglu(both.narrow(0, 2, 2)).sum()).backward();
  EXPECT_TRUE(all.grad().defined());
  const at::Tensor x = at::randn({2, 9, 4}).requires_grad_(), weight = at::randn({12, 4}).requires_grad_();
  const std::vector<LoraWeights> projections = {LoraWeights{weight, {}, {}, {}}};
  const at::Tensor qkv = lora_linear(x, projections, 1.0, Dropout{});  // a view that a custom function made
  rotary_attention_packed(qkv, at::ones({9, 2}), at::zeros({9, 2}), 1).sum().backward();
  EXPECT_TRUE(qkv.grad_fn() != nullptr);
  EXPECT_TRUE(x.grad().defined() && weight.grad().defined());
}

// The sum replaces its branch only if another operation made the branch.
TEST_P(Decoders, ASumLiesWhereItsBranchWas) {
  const at::Tensor leaf = at::randn({5, 16}).requires_grad_(), x = at::randn({5, 16}), weight = at::ones({16});
  const at::Tensor before = leaf.detach().clone(), made = leaf * 1.0;
  const at::Tensor from_leaf = add_rms_rows(leaf, x, weight, kRmsEpsilon).first,
                   from_made = add_rms_rows(made, x, weight, kRmsEpsilon).first;
  EXPECT_TRUE(equal_bits(leaf, before));
  EXPECT_TRUE(equal_bits(from_made, from_leaf));
  EXPECT_EQ(from_made.const_data_ptr(), made.const_data_ptr());
  EXPECT_NE(from_leaf.const_data_ptr(), leaf.const_data_ptr());
}

TEST_P(Decoders, LargeGatesStayFinite) {
  const at::Tensor x = at::tensor({-200.0F, 200.0F, -1e30F, 1e30F, 1.0F, 1.0F, 1.0F, 1.0F}).view({1, 8}).requires_grad_();
  const at::Tensor y = swiglu(x);
  y.sum().backward();
  EXPECT_TRUE(y.isfinite().all().item<bool>());
  EXPECT_TRUE(x.grad().isfinite().all().item<bool>());
  EXPECT_NEAR(y[0][0].item<double>(), 0.0, 1e-6);
}

at::Tensor turn_formula(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {  // (B, T, H, D), (T or B 1, 1, D/2)
  const auto halves = x.chunk(2, -1);
  return at::cat({halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin}, -1);
}

at::Tensor attend_formula(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& seen) {
  const at::Tensor scores = q.transpose(1, 2).matmul(k.permute({0, 2, 3, 1})) / std::sqrt(static_cast<double>(q.size(3)));
  return scores.masked_fill(seen.logical_not(), -1e300).softmax(-1).matmul(v.transpose(1, 2)).transpose(1, 2).flatten(2);
}

struct AttentionCase {
  std::int64_t rows, length, heads, width;
};
const std::vector<AttentionCase> kAttentionCases = {{1, 1, 1, 2}, {2, 7, 3, 8}, {2, 37, 2, 18}, {1, 70, 4, 64}, {1, 5, 1, 66}};

TEST_P(Decoders, RotaryAttentionAgreesWithAten) {
  for (const AttentionCase& one : kAttentionCases) {
    const at::Tensor angles = at::randn({one.length + 2, one.width / 2}) * 3;  // the table may be longer than needed
    const at::Tensor cos = angles.cos(), sin = angles.sin();
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(testing::Message() << one.length << " " << one.heads << " " << one.width << " " << type);
      const auto kernel = [&](const Tensors& x) { return Tensors{rotary_attention_packed(x[0] * 1.0, cos, sin, one.heads)}; };
      const auto reference = [&](const Tensors& x) {
        const at::Tensor at = at::arange(one.length);
        const auto part = [&](std::int64_t i) {
          return x[0].narrow(2, i * one.heads * one.width, one.heads * one.width).unflatten(2, {one.heads, one.width});
        };
        const at::Tensor c = cos.narrow(0, 0, one.length).unsqueeze(1), s = sin.narrow(0, 0, one.length).unsqueeze(1);
        return Tensors{attend_formula(turn_formula(part(0), c, s), turn_formula(part(1), c, s), part(2),
                                      at.unsqueeze(0) <= at.unsqueeze(1))};
      };
      expect_agreement(kernel, reference, {at::randn({one.rows, one.length, 3 * one.heads * one.width}).to(type)},
                       type == at::kFloat ? 3e-5 : 3e-2, true);
    }
  }
}

TEST_P(Decoders, RotaryAttentionOfOneQueryAgreesWithAten) {
  for (const AttentionCase& one : kAttentionCases) {
    const at::Tensor angles = at::randn({one.length, one.width / 2}) * 3;
    const at::Tensor cos = angles.cos(), sin = angles.sin();
    at::Tensor positions = at::full({one.rows}, one.length - 1, at::kLong);
    positions[0] = one.length / 2;
    const std::int64_t c = one.heads * one.width;
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(testing::Message() << one.length << " " << one.heads << " " << one.width << " " << type);
      const auto kernel = [&](const Tensors& x) {
        return Tensors{rotary_attention_at(x[0] * 1.0, x[1] * 1.0, positions, cos, sin, one.heads)};
      };
      const auto reference = [&](const Tensors& x) {
        const auto split = [&](const at::Tensor& y) { return y.unflatten(2, {one.heads, one.width}); };
        const at::Tensor seen = at::arange(one.length).unsqueeze(0) <= positions.unsqueeze(1);
        const auto at_position = [&](const at::Tensor& table) {
          return table.index_select(0, positions).view({one.rows, 1, 1, -1});
        };
        return Tensors{attend_formula(turn_formula(split(x[0]), at_position(cos), at_position(sin)),
                                      turn_formula(split(x[1].narrow(2, 0, c)), cos.unsqueeze(1), sin.unsqueeze(1)),
                                      split(x[1].narrow(2, c, c)), seen.unsqueeze(1).unsqueeze(1))};
      };
      expect_agreement(kernel, reference,
                       {at::randn({one.rows, 1, c}).to(type), at::randn({one.rows, one.length, 2 * c}).to(type)},
                       type == at::kFloat ? 3e-5 : 3e-2, true);
    }
  }
}

TEST_P(Decoders, ScoresOfOneQueryThatOverflowBelowAreNan) {
  const at::Tensor q = at::full({1, 1, 4}, 1e30), kv = at::cat({at::full({1, 3, 4}, -1e30), at::ones({1, 3, 4})}, 2);
  const at::Tensor cos = at::ones({3, 2}), sin = at::zeros({3, 2});
  EXPECT_TRUE(rotary_attention_at(q, kv, at::full({1}, 2, at::kLong), cos, sin, 1).isnan().all().item<bool>());
}

TEST_P(Decoders, AQueryOutsideItsRowIsRefused) {
  const at::Tensor q = at::randn({2, 1, 4}), kv = at::randn({2, 3, 8}), angles = at::ones({3, 2});
  for (const std::int64_t position : {-1, 3}) {
    EXPECT_THROW(rotary_attention_at(q, kv, at::full({2}, position, at::kLong), angles, angles, 1), InternalError);
  }
}

// x, weights of both projections, then A and B of the second.
Tensors adapted_inputs(std::int64_t rows, std::int64_t in, at::ScalarType type) {
  const double scale = 1 / std::sqrt(static_cast<double>(in));
  return {at::randn({rows, in}).to(type), at::randn({24, in}) * scale, at::randn({17, in}) * scale, at::randn({5, in}) * scale,
          at::randn({17, 5})};
}

TEST_P(Decoders, AdaptedLinearAgreesWithAten) {
  constexpr std::uint64_t kKey = 0x1234567812345678ULL;
  for (const std::int64_t rows : {1, 7, 1300}) {  // 1300 wide rows are dropped in parts
    for (const std::int64_t in : {9, 32, 257}) {
      for (const auto type : {at::kFloat, at::kBFloat16}) {
        const std::vector<IndexRun> out_of_order = {{700 * in, (rows - rows / 2) * in}, {3 * in, rows / 2 * in}};
        for (const auto& site : {Dropout{}, Dropout{0.3, kKey}, Dropout{0.3, kKey, 0, out_of_order}}) {
          SCOPED_TRACE(testing::Message() << rows << " " << in << " " << type << " " << site.p << " " << site.runs.size());
          const auto kernel = [&](const Tensors& x) {
            return Tensors{lora_linear(x[0], {{x[1], {}, {}, {}}, {x[2], {}, x[3], x[4]}}, 2.0, site)};
          };
          const at::Tensor keep = dropout_mask_reference({rows, in}, site).to(at::kDouble) / (1 - site.p);
          const auto reference = [&](const Tensors& x) {
            const at::Tensor narrow = (x[0] * keep).matmul(x[3].t());
            return Tensors{at::cat({x[0].matmul(x[1].t()), x[0].matmul(x[2].t()) + narrow.matmul(x[4].t()) * 2.0}, 1)};
          };
          expect_agreement(kernel, reference, adapted_inputs(rows, in, type), type == at::kFloat ? 3e-5 : 3e-2, true);
        }
      }
    }
  }
}

TEST_P(Decoders, FrozenWeightsAreCopiedOnceAndMultipliedWhereTheyLie) {
  const at::Tensor x = at::randn({8, 16}).to(at::kBFloat16), both = at::randn({12, 16});
  const auto projected = [](const at::Tensor& rows, const at::Tensor& first, const at::Tensor& second) {
    return lora_linear(rows, {{first, {}, {}, {}}, {second, {}, {}, {}}}, 1.0, {});
  };
  const at::Tensor wide = x.to(at::kFloat).requires_grad_();
  const at::Tensor apart = projected(wide, both.narrow(0, 0, 5).clone(), both.narrow(0, 5, 7).clone());
  EXPECT_TRUE(equal_bits(projected(wide, both.narrow(0, 0, 5), both.narrow(0, 5, 7)), apart));
  const at::Tensor frozen = at::ones({4, 16});
  const at::Tensor before = projected(x, frozen, frozen);
  const std::size_t copies = weight_copies();
  note_backward();
  EXPECT_TRUE(equal_bits(projected(x, frozen, frozen), before));
  EXPECT_EQ(weight_copies(), copies);
  frozen.mul_(2);  // as if weights were read from a file
  EXPECT_TRUE(equal_bits(projected(x, frozen, frozen), before * 2));
}

TEST_P(Decoders, DecoderThreadsChangeNoBit) {
  const int threads = at::get_num_threads();
  const at::Tensor input = at::randn({3, 19, 96}), scale = at::randn({96}), angles = at::randn({19, 8});
  const auto results = [&](int count) {
    at::set_num_threads(count);
    const at::Tensor x = input.clone().requires_grad_(), weight = scale.clone().requires_grad_();
    const at::Tensor y = rms_rows(x, weight, kRmsEpsilon, at::kFloat);
    const at::Tensor z = rotary_attention_packed(y * 2, angles.cos(), angles.sin(), 2);
    (swiglu(z).square().sum() + z.sum()).backward();
    return Tensors{z.detach(), x.grad(), weight.grad()};
  };
  const Tensors one = results(1);
  for (const int count : {2, 3, 7}) {
    const Tensors more = results(count);
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(equal_bits(one[i], more[i])) << count << " " << i;
  }
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace millrace::kernels
