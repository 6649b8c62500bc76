// Tests that tensors without kernels get the kernels' arithmetic: fp32 inside, one rounding, and only the argument is kept.
#include "millrace/kernels/widened.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sigmoid.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <string>
#include <vector>

#include "millrace/kernels/gelu_linear.h"
#include "millrace/kernels/plain.h"
#include "millrace/kernels/rms_norm.h"
#include "millrace/kernels/smooth_leaky.h"
#include "millrace/kernels/soft_pool.h"

namespace millrace::kernels {
namespace {

struct Operation {
  const char* name;
  Plain fused, plain;
  double extreme;  // a value at which arithmetic in fp16 would overflow or lose all digits
};
std::vector<Operation> operations() {
  const Plain quick = [](const at::Tensor& x) { return gelu(x, Gelu::quick); };
  const Plain quick_plain = [](const at::Tensor& x) {
    const at::Tensor values = wide(x);
    return (values * at::sigmoid(values * 1.702)).to(x.scalar_type());
  };
  return {{"rms_norm_silu", [](const at::Tensor& x) { return rms_norm_silu(x, 1e-5); },
           [](const at::Tensor& x) { return rms_norm_silu_plain(x, 1e-5); }, 300},
          {"blurred_soft_pool", [](const at::Tensor& x) { return blurred_soft_pool(x, 1); },
           [](const at::Tensor& x) { return blurred_soft_pool_plain(x, 1); }, 40},
          {"smooth_leaky", smooth_leaky, smooth_leaky_plain, 30000},
          {"quick_gelu", quick, quick_plain, 60000}};
}
// A CPU has kernels for bf16 but not for fp16, so with fp16 `fused` tests the path of a GPU.
constexpr auto kNarrow = {at::kHalf, at::kBFloat16};

at::Tensor sample() { return at::randn({2, 3, 2, 6, 5}) * 3; }

std::pair<at::Tensor, at::Tensor> with_gradient(const Plain& function, const at::Tensor& x) {
  const at::Tensor input = x.detach().clone().requires_grad_();
  const at::Tensor y = function(input);
  const at::Tensor weight = at::full({}, 0.5, y.options()) + y.detach() * 0.01;
  return {y.detach(), torch::autograd::grad({y}, {input}, {weight})[0]};
}

TEST(Widened, SixteenBitsAreTheFp32ResultRoundedOnce) {
  for (const Operation& operation : operations()) {
    for (const auto type : kNarrow) {
      SCOPED_TRACE(std::string(operation.name) + " " + c10::toString(type));
      const at::Tensor x = sample().to(type);
      const at::Tensor expected = operation.plain(x.to(at::kFloat)).to(type);
      EXPECT_TRUE(at::equal(operation.plain(x), expected));
      if (type == at::kHalf) {
        EXPECT_TRUE(at::equal(operation.fused(x), expected));
      }
      EXPECT_TRUE(at::equal(widened(x, [&](const at::Tensor& values) { return operation.plain(values); }), expected));
    }
  }
}

TEST(Widened, GradientsAreThoseOfTheFp32Operations) {
  for (const Operation& operation : operations()) {
    SCOPED_TRACE(operation.name);
    const at::Tensor x = sample().to(at::kHalf);
    const auto [y, gradient] = with_gradient(operation.fused, x);
    const auto [exact, expected] = with_gradient(operation.plain, x.to(at::kFloat));
    EXPECT_EQ(gradient.scalar_type(), at::kHalf);
    const double largest = expected.abs().max().item<double>();
    EXPECT_LE((gradient.to(at::kFloat) - expected).abs().max().item<double>(), 2e-3 * largest);
  }
}

TEST(Widened, IsFiniteWhereTheKernelsAre) {
  for (const Operation& operation : operations()) {
    SCOPED_TRACE(operation.name);
    const at::Tensor x = at::full({1, 4, 1, 4, 4}, operation.extreme, at::kHalf);
    const auto [y, gradient] = with_gradient(operation.fused, x);
    const at::Tensor exact = operation.plain(x.to(at::kFloat));
    EXPECT_TRUE(y.isfinite().all().item<bool>());
    EXPECT_TRUE(gradient.isfinite().all().item<bool>());
    EXPECT_LE((y.to(at::kFloat) - exact).abs().max().item<double>(), 1e-3 * exact.abs().max().item<double>());
    EXPECT_GT(exact.abs().max().item<double>(), 0.5);
  }
}

// A chain of ATen's operations would keep a dozen tensors alive.
TEST(Widened, KeepsItsArgumentAlone) {
  for (const Operation& operation : operations()) {
    for (const auto type : {at::kHalf, at::kDouble}) {
      SCOPED_TRACE(operation.name);
      const at::Tensor x = sample().to(type).requires_grad_();
      const auto node = operation.fused(x).grad_fn();
      ASSERT_NE(node, nullptr);
      EXPECT_EQ(node->next_edge(0).function->name(), "torch::autograd::AccumulateGrad");
    }
  }
}

TEST(Widened, AutocastHasNoPartInIt) {
  const at::Tensor x = sample();
  const Plain square = [](const at::Tensor& values) { return at::matmul(values, values.transpose(-1, -2)); };
  const at::Tensor exact = square(x);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const at::Tensor y = widened(x, square);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_TRUE(at::equal(y, exact));
}

TEST(Widened, Fp16ScoresOfAttentionStayInRange) {
  const at::Tensor q = at::full({1, 3, 1, 64}, 40.0, at::kHalf), v = at::randn({1, 3, 1, 64}).to(at::kHalf);
  const at::Tensor y = causal_attention_with_mask(q, q, v, {}, 0.0);  // q k is 102,400, too large for fp16
  const at::Tensor wide_y = causal_attention_with_mask(wide(q), wide(q), wide(v), {}, 0.0);
  EXPECT_LE((y.to(at::kFloat) - wide_y).abs().max().item<double>(), 2e-3);
}

}  // namespace
}  // namespace millrace::kernels
