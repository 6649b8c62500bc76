// Compares parts of a decoder, plain and fused, with their formulas in fp64: values and gradients, in fp32 and under bf16
// autocast.
#include "millrace/nn/decoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "millrace/core/random.h"

namespace millrace::nn::decoder_parts {  // a separate namespace, because several tests are compiled as one source
namespace {

using Tensors = std::vector<at::Tensor>;
using Sizes = std::vector<std::int64_t>;
using Function = std::function<Tensors(const Tensors&, const Fused&)>;
using Formula = std::function<Tensors(const Tensors&)>;  // computes in fp64

constexpr double kEps = 1e-5;
const Fused kFused;
const Fused kPlain = Fused::plain();

// Turns on bf16 autocast on the CPU while it exists.
class Bf16 {
 public:
  Bf16() {
    at::autocast::increment_nesting();
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  }
  ~Bf16() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
};

// Runs `function`. Returns its results, and then the gradients of a weighted sum of all results with respect to all inputs.
// Inputs whose number is in `frozen` get no gradient.
Tensors pass(const std::function<Tensors(const Tensors&)>& function, const Tensors& inputs,
             const std::vector<std::size_t>& frozen, bool bf16) {
  Tensors leaves;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool leaf = inputs[i].is_floating_point() && std::ranges::find(frozen, i) == frozen.end();
    leaves.push_back(inputs[i].detach().clone().requires_grad_(leaf));
  }
  Tensors outputs;
  {
    const RandomScope scope({.seed = 3, .epoch = 1});
    std::optional<Bf16> autocast;
    if (bf16) autocast.emplace();
    outputs = function(leaves);
  }
  at::Tensor sum = at::zeros({}, at::kDouble);
  for (const at::Tensor& out : outputs) {
    const at::Tensor weight = at::ones({out.numel()}, at::kDouble).cumsum(0).mul(1.7).sin().view(out.sizes());
    sum = sum + (out.to(at::kDouble) * weight).sum();
  }
  sum.backward();
  Tensors all;
  for (const at::Tensor& out : outputs) all.push_back(out.detach());
  for (const at::Tensor& leaf : leaves) {
    if (leaf.requires_grad()) all.push_back(leaf.grad());
    EXPECT_EQ(leaf.requires_grad(), leaf.grad().defined());
  }
  return all;
}

double error_of(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !a.sizes().equals(b.sizes())) return std::numeric_limits<double>::infinity();
  if (b.numel() == 0) return 0.0;
  return ((a.to(at::kDouble) - b.to(at::kDouble)).abs().max() / b.abs().max().clamp_min(1e-6)).item<double>();
}

// Compares both paths, in both number formats, with the formula.
void expect_formula(const Function& function, const Formula& formula, const Tensors& inputs,
                    const std::vector<std::size_t>& frozen = {}, double tolerance = 2e-5) {
  Tensors exact;
  for (const at::Tensor& input : inputs) exact.push_back(input.is_floating_point() ? input.to(at::kDouble) : input);
  const Tensors expected = pass(formula, exact, frozen, false);
  for (const bool fused : {false, true}) {
    for (const bool bf16 : {false, true}) {
      const auto by_paths = [&](const Tensors& in) { return function(in, fused ? kFused : kPlain); };
      const Tensors found = pass(by_paths, inputs, frozen, bf16);
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_LT(error_of(found[i], expected[i]), bf16 ? 3e-2 : tolerance)
            << (fused ? "fused " : "plain ") << (bf16 ? "bf16 " : "fp32 ") << inputs[0].sizes() << " number " << i;
      }
    }
  }
}

at::Tensor norm_formula(const at::Tensor& x, const at::Tensor& weight) {
  return x / (x.square().mean(-1, true) + kEps).sqrt() * weight;
}

TEST(Decoder, RmsNormIsItsFormula) {
  at::manual_seed(1);
  for (const Sizes& sizes : {Sizes{3, 5, 16}, Sizes{7, 33}, Sizes{1, 1, 3}, Sizes{2, 9, 250}}) {
    const Tensors inputs{at::randn(sizes) * 2 + 0.5, at::randn({sizes.back()}) + 1.5};
    const Function norm = [](const Tensors& in, const Fused& fused) { return Tensors{rms_norm(in[0], in[1], kEps, fused)}; };
    const Formula formula = [](const Tensors& in) { return Tensors{norm_formula(in[0], in[1])}; };
    expect_formula(norm, formula, inputs);
    expect_formula(norm, formula, inputs, {1});
  }
}

TEST(Decoder, AddRmsNormGivesTheSumAndItsNorm) {
  at::manual_seed(2);
  for (const Sizes& sizes : {Sizes{3, 5, 16}, Sizes{7, 33}, Sizes{2, 9, 250}}) {
    const Tensors inputs{at::randn(sizes), at::randn(sizes) * 2, at::randn({sizes.back()}) + 1.5};
    const Function both = [](const Tensors& in, const Fused& fused) {
      const auto [sum, y] = add_rms_norm(in[0], in[1], in[2], kEps, fused);
      return Tensors{sum, y};
    };
    const Formula formula = [](const Tensors& in) { return Tensors{in[0] + in[1], norm_formula(in[0] + in[1], in[2])}; };
    expect_formula(both, formula, inputs);
    expect_formula(both, formula, inputs, {2});
    const Function alone = [](const Tensors& in, const Fused& fused) {  // the sum is not used
      return Tensors{add_rms_norm(in[0], in[1], in[2], kEps, fused).second};
    };
    expect_formula(alone, [](const Tensors& in) { return Tensors{norm_formula(in[0] + in[1], in[2])}; }, inputs, {2});
  }
}

TEST(Decoder, NormsHaveAutocastsTypeAndSumsTheResiduals) {
  const at::Tensor x = at::randn({2, 8}), weight = at::ones({8});
  const Bf16 autocast;
  for (const Fused& fused : {kFused, kPlain}) {
    const auto [sum, y] = add_rms_norm(x.to(at::kBFloat16), x, weight, kEps, fused);
    EXPECT_EQ(sum.scalar_type(), at::kFloat);
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    EXPECT_EQ(rms_norm(x, weight, kEps, fused).scalar_type(), at::kBFloat16);
  }
}

TEST(Decoder, SwigluIsItsFormula) {
  at::manual_seed(3);
  for (const Sizes& sizes : {Sizes{3, 5, 32}, Sizes{4, 2}, Sizes{2, 3, 2 * 43}, Sizes{1, 2 * 200}}) {
    const Function gated = [](const Tensors& in, const Fused& fused) { return Tensors{swiglu(in[0], fused)}; };
    const Formula formula = [](const Tensors& in) {
      const auto halves = in[0].chunk(2, -1);
      return Tensors{halves[0] / (1 + (-halves[0]).exp()) * halves[1]};
    };
    expect_formula(gated, formula, {at::randn(sizes) * 3});
  }
}

// Turns one head at a time, pair by pair, as in the paper.
at::Tensor turned_formula(const at::Tensor& x, const at::Tensor& positions, std::int64_t heads, double base) {
  const std::int64_t width = x.size(2) / heads, half = width / 2;
  const at::Tensor rates = (at::arange(half, at::kDouble) * (-2.0 * std::log(base) / static_cast<double>(width))).exp();
  const at::Tensor angles = (positions.to(at::kDouble).unsqueeze(-1) * rates).unsqueeze(-2);
  const at::Tensor split = x.unflatten(2, {heads, width});
  const at::Tensor a = split.narrow(3, 0, half), b = split.narrow(3, half, half);
  return at::cat({a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()}, 3);
}

at::Tensor attention_formula(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& seen) {
  const at::Tensor scores = q.transpose(1, 2).matmul(k.permute({0, 2, 3, 1})) / std::sqrt(static_cast<double>(q.size(3)));
  const at::Tensor weights = scores.masked_fill(seen.logical_not(), -1e300).softmax(-1);
  return weights.matmul(v.transpose(1, 2)).transpose(1, 2).flatten(2);
}

TEST(Decoder, RotaryAttentionIsItsFormula) {
  at::manual_seed(4);
  struct Case {
    std::int64_t rows, length, heads, width;
  };
  for (const Case& one : {Case{2, 7, 3, 8}, Case{1, 1, 1, 2}, Case{2, 37, 2, 18}, Case{1, 70, 4, 64}}) {
    const std::int64_t more = 5 * (one.rows - 1);  // a table may be longer than the rows
    const Rotary rotary = rotary_table(one.length + more, one.width, 10000, at::kCPU);
    const Function attend = [&](const Tensors& in, const Fused& fused) {
      return Tensors{rotary_attention(in[0] * 1.0, rotary, one.heads, fused)};
    };
    const Formula formula = [&](const Tensors& in) {
      const auto parts = in[0].chunk(3, -1);
      const at::Tensor at = at::arange(one.length, at::kDouble);
      const at::Tensor seen = at.unsqueeze(0) <= at.unsqueeze(1);
      return Tensors{attention_formula(turned_formula(parts[0], at, one.heads, 10000),
                                       turned_formula(parts[1], at, one.heads, 10000),
                                       parts[2].unflatten(2, {one.heads, one.width}), seen)};
    };
    expect_formula(attend, formula, {at::randn({one.rows, one.length, 3 * one.heads * one.width})});
  }
}

TEST(Decoder, AttentionOfOnePositionIsThatPositionsRow) {
  at::manual_seed(5);
  const std::int64_t rows = 3, length = 9, heads = 2, width = 6, c = heads * width;
  const Rotary rotary = rotary_table(length, width, 10000, at::kCPU);
  const at::Tensor positions = at::tensor({8, 0, 5}, at::kLong);
  const Function attend = [&](const Tensors& in, const Fused& fused) {
    const at::Tensor q = in[0].narrow(2, 0, c).gather(1, positions.view({rows, 1, 1}).expand({rows, 1, c}));
    return Tensors{rotary_attention_at(q, in[0].narrow(2, c, 2 * c) * 1.0, positions, rotary, heads, fused)};
  };
  const Formula formula = [&](const Tensors& in) {
    const auto parts = in[0].chunk(3, -1);
    const at::Tensor at = at::arange(length, at::kDouble);
    const at::Tensor all =
        attention_formula(turned_formula(parts[0], at, heads, 10000), turned_formula(parts[1], at, heads, 10000),
                          parts[2].unflatten(2, {heads, width}), at.unsqueeze(0) <= at.unsqueeze(1));
    return Tensors{all.gather(1, positions.view({rows, 1, 1}).expand({rows, 1, c}))};
  };
  expect_formula(attend, formula, {at::randn({rows, length, 3 * c})});
}

struct Layout {
  std::int64_t in, rank;
  std::vector<std::int64_t> outs;
  bool bias, first_adapted, others_adapted;
};
// x, and then W, bias, A and B of each projection, if they are present.
Tensors tensors_of(const Layout& layout, const Sizes& rows) {
  Sizes sizes = rows;
  sizes.push_back(layout.in);
  Tensors all{at::randn(sizes)};
  const double scale = 1.0 / std::sqrt(static_cast<double>(layout.in));
  for (std::size_t i = 0; i < layout.outs.size(); ++i) {
    all.push_back(at::randn({layout.outs[i], layout.in}) * scale);
    if (layout.bias) all.push_back(at::randn({layout.outs[i]}));
    if (!(i == 0 ? layout.first_adapted : layout.others_adapted)) continue;
    all.push_back(at::randn({layout.rank, layout.in}) * scale);
    all.push_back(at::randn({layout.outs[i], layout.rank}));
  }
  return all;
}
std::vector<LoraProjection> adapted_of(const Layout& layout, const Tensors& in) {
  std::vector<LoraProjection> all;
  std::size_t next = 1;
  for (std::size_t i = 0; i < layout.outs.size(); ++i) {
    LoraProjection one{.weight = in[next++]};
    if (layout.bias) one.bias = in[next++];
    if (i == 0 ? layout.first_adapted : layout.others_adapted) {
      one.lora_a = in[next++];
      one.lora_b = in[next++];
    }
    all.push_back(std::move(one));
  }
  return all;
}

const std::vector<Layout> kLayouts = {{16, 4, {16, 16, 16}, false, true, true},
                                      {33, 3, {7, 20}, false, true, false},
                                      {24, 2, {40, 24, 9}, true, false, true},
                                      {20, 8, {11}, true, true, true},
                                      {18, 8, {32, 32}, false, false, false}};

at::Tensor adapted_formula(const Layout& layout, const Tensors& in, double scale, const at::Tensor& factor) {
  Tensors parts;
  for (const LoraProjection& one : adapted_of(layout, in)) {
    at::Tensor y = in[0].matmul(one.weight.t());
    if (one.bias.defined()) y = y + one.bias;
    if (one.lora_a.defined()) y = y + (in[0] * factor).matmul(one.lora_a.t()).matmul(one.lora_b.t()) * scale;
    parts.push_back(y);
  }
  return at::cat(parts, -1);
}

std::vector<std::size_t> base_of(const Layout& layout) {
  std::vector<std::size_t> frozen;
  std::size_t next = 1;
  for (std::size_t i = 0; i < layout.outs.size(); ++i) {
    frozen.push_back(next++);
    if (layout.bias) frozen.push_back(next++);
    if (i == 0 ? layout.first_adapted : layout.others_adapted) next += 2;
  }
  return frozen;
}

TEST(Decoder, AdaptedProjectionsAreTheirFormula) {
  at::manual_seed(6);
  for (const Layout& layout : kLayouts) {
    for (const double p : {0.0, 0.3}) {
      const Tensors inputs = tensors_of(layout, {2, 7});
      at::Tensor factor = at::ones({}, at::kDouble);
      if (p > 0) {  // the elements that this key drops
        const RandomScope scope({.seed = 3, .epoch = 1});
        factor = dropout(at::ones_like(inputs[0]), p, kPlain).to(at::kDouble);
      }
      const Function projected = [&](const Tensors& in, const Fused& fused) {
        return Tensors{lora_linear(in[0], adapted_of(layout, in), 1.5, p, fused)};
      };
      const Formula formula = [&](const Tensors& in) { return Tensors{adapted_formula(layout, in, 1.5, factor)}; };
      expect_formula(projected, formula, inputs);
      std::vector<std::size_t> frozen = base_of(layout);
      expect_formula(projected, formula, inputs, frozen);
      if (!layout.first_adapted && !layout.others_adapted) continue;
      frozen.push_back(0);  // x is data, too
      expect_formula(projected, formula, inputs, frozen);
    }
  }
}

TEST(Decoder, AGatedProjectionIsItsFormula) {
  at::manual_seed(8);
  for (const bool adapts : {false, true}) {
    const Layout layout{14, 3, {9}, false, adapts, adapts};
    Tensors inputs = tensors_of(layout, {2, 40});
    inputs[0] = at::randn({2, 40, 2 * layout.in});
    const Function projected = [&](const Tensors& in, const Fused& fused) {
      return Tensors{lora_swiglu(in[0] * 1.0, adapted_of(layout, in).front(), 1.5, 0.0, fused)};
    };
    const Formula formula = [&](const Tensors& in) {
      Tensors gated = in;
      const auto halves = in[0].chunk(2, -1);
      gated[0] = halves[0] * halves[0].sigmoid() * halves[1];
      return Tensors{adapted_formula(layout, gated, 1.5, at::ones({}, at::kDouble))};
    };
    expect_formula(projected, formula, inputs);
    expect_formula(projected, formula, inputs, base_of(layout));
  }
}

TEST(Decoder, AFrozenWeightMayBeKeptInSixteenBits) {
  at::manual_seed(7);
  const Layout& layout = kLayouts[1];
  Tensors inputs = tensors_of(layout, {5});
  for (const std::size_t i : base_of(layout)) inputs[i] = inputs[i].to(at::kBFloat16);
  const Function projected = [&](const Tensors& in, const Fused& fused) {
    return Tensors{lora_linear(in[0], adapted_of(layout, in), 2.0, 0.0, fused)};
  };
  const Formula formula = [&](const Tensors& in) { return Tensors{adapted_formula(layout, in, 2.0, at::ones({}, at::kDouble))}; };
  expect_formula(projected, formula, inputs, base_of(layout));
}

TEST(Decoder, NoRowsGiveNoRows) {
  for (const Fused& fused : {kFused, kPlain}) {
    const at::Tensor none = at::zeros({0, 8});
    EXPECT_EQ(rms_norm(none, at::ones({8}), kEps, fused).sizes(), none.sizes());
    EXPECT_EQ(add_rms_norm(none, none, at::ones({8}), kEps, fused).second.sizes(), none.sizes());
    EXPECT_EQ(swiglu(none, fused).sizes(), (Sizes{0, 4}));
    const Layout layout{8, 2, {4, 4}, false, true, true};
    EXPECT_EQ(lora_linear(none, adapted_of(layout, tensors_of(layout, {0})), 1, 0, fused).sizes(), (Sizes{0, 8}));
    EXPECT_EQ(rotary_attention(at::zeros({0, 3, 12}), rotary_table(3, 4, 10000, at::kCPU), 1, fused).sizes(), (Sizes{0, 3, 4}));
  }
}

TEST(Decoder, RotaryTableHoldsTheAnglesOfThePaper) {
  const Rotary table = rotary_table(300, 6, 10000, at::kCPU);
  EXPECT_EQ(table.cos.sizes(), (Sizes{300, 3}));
  EXPECT_NEAR(table.sin[299][0].item<double>(), std::sin(299.0), 1e-6);
  EXPECT_NEAR(table.cos[299][1].item<double>(), std::cos(299.0 * std::pow(10000.0, -2.0 / 6.0)), 1e-6);
}

}  // namespace
}  // namespace millrace::nn::decoder_parts
