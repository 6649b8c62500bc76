#include "millrace/nn/functional.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/core/random.h"

namespace millrace::nn {
namespace {

using Inputs = std::vector<at::Tensor>;
using Function = std::function<at::Tensor(const Inputs&, const Fused&)>;

const Fused kWithoutFusing = Fused::plain();

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

// Value and gradients of one pass with one key, joined into one fp32 vector.
at::Tensor pass(const Function& function, const Inputs& inputs, const Fused& fused, bool bf16) {
  Inputs leaves;
  for (const at::Tensor& input : inputs) {
    leaves.push_back(input.is_floating_point() ? input.detach().clone().requires_grad_() : input);
  }
  at::Tensor out;
  {
    const RandomScope scope({.seed = 3, .epoch = 1});
    std::optional<Bf16> autocast;
    if (bf16) autocast.emplace();
    out = function(leaves, fused);
  }
  const at::Tensor weight = at::ones({out.numel()}).cumsum(0).sin().view(out.sizes());
  (out.to(at::kFloat) * weight).sum().backward();
  Inputs all{out.detach().to(at::kFloat).flatten()};
  for (const at::Tensor& leaf : leaves) {
    if (leaf.is_floating_point()) all.push_back(leaf.grad().flatten());
  }
  return at::cat(all);
}

double difference(const Function& function, const Inputs& inputs, const Fused& fused, bool bf16) {
  const at::Tensor given = pass(function, inputs, fused, bf16);
  const at::Tensor plain = pass(function, inputs, kWithoutFusing, bf16);
  return ((given - plain).abs().max() / plain.abs().max()).item<double>();
}

TEST(Functional, DropoutOnAndOffAreEqualToTheBit) {
  at::manual_seed(1);
  const Inputs in{at::randn({9, 50}), at::randn({9, 50})};
  const Function alone = [](const Inputs& x, const Fused& fused) { return dropout(x[0], 0.3, fused) + x[1]; };
  const Function added = [](const Inputs& x, const Fused& fused) { return dropout_add(x[0], x[1], 0.3, fused); };
  for (const bool bf16 : {false, true}) {
    EXPECT_EQ(difference(alone, in, {}, bf16), 0.0);
    EXPECT_EQ(difference(added, in, {}, bf16), 0.0);
  }
  const Function narrow = [](const Inputs& x, const Fused& fused) {
    return dropout_add(x[0].to(at::kBFloat16), x[1], 0.3, fused);
  };
  EXPECT_EQ(difference(narrow, in, {}, false), 0.0);
}

TEST(Functional, EveryPathAgreesWithThePlainOne) {
  at::manual_seed(2);
  const Inputs rows{at::randn({2, 9, 32}), at::randn({2, 9, 32}), at::randn({32}), at::randn({32})};
  const Function norm = [](const Inputs& x, const Fused& fused) {
    return layer_norm(x[0], x[2], x[3], 1e-5, fused).to(at::kFloat) + x[1];
  };
  const Function step = [](const Inputs& x, const Fused& fused) {
    const auto [sum, y] = dropout_add_layer_norm(x[0], x[1], x[2], x[3], 1e-5, 0.2, fused);
    return at::cat({sum, y.to(sum.scalar_type())});
  };
  const Function gelu = [](const Inputs& x, const Fused& fused) { return gelu_dropout(x[0], 0.2, fused) + x[1] + x[2] + x[3]; };
  for (const Function& function : {norm, step, gelu}) {
    EXPECT_LT(difference(function, rows, {}, false), 1e-5);
    EXPECT_LT(difference(function, rows, {}, true), 2e-2);
    const Fused mixed = Fused::without({kFusedDropout});  // the other kernels get the reference's mask
    EXPECT_LT(difference(function, rows, mixed, false), 1e-5);
  }
}

TEST(Functional, SelfAttentionAgreesWithThePlainPathForEachFlag) {
  at::manual_seed(3);
  Inputs in{at::randn({2, 21, 48})};
  for (int i = 0; i < 3; ++i) {
    in.push_back(at::randn({48, 48}) * 0.1);
    in.push_back(at::randn({48}) * 0.1);
  }
  const Function attend = [](const Inputs& x, const Fused& fused) {
    return causal_self_attention(x[0], {x[1], x[2], x[3], x[4], x[5], x[6]}, 3, 0.2, fused);
  };
  EXPECT_LT(difference(attend, in, {}, false), 2e-5);
  EXPECT_LT(difference(attend, in, {}, true), 4e-2);
  const Fused apart = Fused::without({kBf16Weights, kFp32Products});  // three products, then the fused attention
  EXPECT_LT(difference(attend, in, apart, true), 4e-2);
  EXPECT_LT(difference(attend, in, apart, false), 2e-5);
}

TEST(Functional, ASelfAttentionWithSomeOfItsBiasesIsRefused) {
  const at::Tensor w = at::ones({4, 4}), b = at::zeros({4}), x = at::ones({1, 2, 4});
  for (const Fused& fused : {Fused(), kWithoutFusing}) {
    EXPECT_THROW((void)causal_self_attention(x, {w, b, w, {}, w, b}, 2, 0.0, fused), RecipeError);
    EXPECT_EQ(causal_self_attention(x, {w, {}, w, {}, w, {}}, 2, 0.0, fused).sizes(), x.sizes());
  }
}

TEST(Functional, LinearUnderAutocastKeepsFp32Gradients) {
  at::manual_seed(4);
  const Inputs in{at::randn({5, 24}), at::randn({7, 24}), at::randn({7})};
  const Function with_bias = [](const Inputs& x, const Fused& fused) { return linear(x[0], x[1], x[2], fused); };
  EXPECT_LT(difference(with_bias, in, {}, false), 2e-6);
  EXPECT_LT(difference(with_bias, in, {}, true), 2e-2);
  const at::Tensor weight = in[1].clone().requires_grad_();
  at::Tensor y;
  {
    const Bf16 autocast;
    y = linear(in[0], weight, {}, {});
  }
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  y.sum().backward();
  EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
}

TEST(Functional, CrossEntropyAgreesWithThePlainPathAndCounts) {
  at::manual_seed(5);
  const at::Tensor target = at::randint(0, 11, {2, 6}, at::kLong);
  target[0][0].fill_(0);
  const Function loss = [&](const Inputs& x, const Fused& fused) { return cross_entropy_sum(x[0], target, 0, fused).first; };
  EXPECT_LT(difference(loss, {at::randn({2, 6, 11})}, {}, false), 1e-6);
  const float counted = target.ne(0).sum().item<float>();
  EXPECT_EQ(cross_entropy_sum(at::randn({2, 6, 11}), target, 0, {}).second.item<float>(), counted);
  EXPECT_EQ(cross_entropy_sum(at::randn({2, 6, 11}), target, 0, kWithoutFusing).second.item<float>(), counted);
}

TEST(Functional, ProbabilityZeroDrawsNoKeyAndEverySiteDrawsOne) {
  const at::Tensor x = at::randn({4, 8});
  const auto key_after = [&](const std::function<void(const Fused&)>& calls, const Fused& fused) {
    const RandomScope scope({.seed = 9, .epoch = 2});
    calls(fused);
    return RandomScope::next_site(1).key;
  };
  const auto none = [](const Fused&) {};
  const auto zero = [&](const Fused& fused) { dropout(gelu_dropout(dropout_add(x, x, 0.0, fused), 0.0, fused), 0.0, fused); };
  const auto three = [&](const Fused& fused) {
    dropout(gelu_dropout(x, 0.1, fused), 0.1, fused);
    const at::Tensor q = x.view({1, 4, 1, 8});
    causal_attention(q, q, q, 0.1, fused);
  };
  EXPECT_EQ(key_after(zero, {}), key_after(none, {}));
  EXPECT_EQ(key_after(three, {}), key_after(three, kWithoutFusing));
  EXPECT_NE(key_after(three, {}), key_after(none, {}));
}

TEST(Functional, SinusoidsFollowTheFormula) {
  const at::Tensor table = sinusoidal_positions(50, 8);
  EXPECT_TRUE(table.sizes().equals({50, 8}));
  EXPECT_EQ(table[0][0].item<float>(), 0.0F);
  EXPECT_EQ(table[0][1].item<float>(), 1.0F);
  EXPECT_NEAR(table[31][4].item<float>(), std::sin(31 * std::pow(10000.0, -4.0 / 8)), 1e-6);
  EXPECT_NEAR(table[31][5].item<float>(), std::cos(31 * std::pow(10000.0, -4.0 / 8)), 1e-6);
  EXPECT_THROW(sinusoidal_positions(4, 3), InternalError);
}

}  // namespace
}  // namespace millrace::nn
