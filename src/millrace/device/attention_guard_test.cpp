#include "millrace/device/attention_guard.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <gmock/gmock.h>

#include <optional>
#include <vector>

namespace millrace::device {
namespace {

struct Attended {
  at::Tensor out;
  std::vector<at::Tensor> gradients;
};

Attended attend(const std::vector<at::Tensor>& inputs, at::ScalarType format, const std::optional<at::Tensor>& mask = {},
                bool is_causal = false) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& x : inputs) leaves.push_back(x.to(format).detach().clone().requires_grad_());
  Attended attended{at::scaled_dot_product_attention(leaves[0], leaves[1], leaves[2], mask, 0.0, is_causal), {}};
  attended.out.backward(at::ones(attended.out.sizes(), attended.out.options()));
  for (const at::Tensor& x : leaves) attended.gradients.push_back(x.grad());
  return attended;
}

class AttentionGuard : public testing::Test {
 protected:
  AttentionGuard() { at::set_num_threads(2); }
  ~AttentionGuard() override { at::set_num_threads(threads_); }

  const int threads_ = at::get_num_threads();
  const std::vector<at::Tensor> inputs_{at::randn({2, 3, 40, 16}).to(at::kBFloat16), at::randn({2, 3, 40, 16}).to(at::kBFloat16),
                                        at::randn({2, 3, 40, 16}).to(at::kBFloat16)};
};

TEST_F(AttentionGuard, StandsWhereTheCpuHasTiles) {
  EXPECT_EQ(guard_attention() != nullptr, below().isa == OnednnIsa::amx);
  if (guard_attention() != nullptr) {
    EXPECT_EQ(guard_attention()->name, "pytorch-187912");
  }
}

TEST_F(AttentionGuard, SixteenBitsAreComputedInFp32AndComeBackAsTheyWere) {
  const AttentionGuardForTest guard;
  const Attended guarded = attend(inputs_, at::kBFloat16);
  EXPECT_EQ(guard.times(), 2);  // once forward, once backward
  const Attended wide = attend(inputs_, at::kFloat);
  EXPECT_EQ(guard.times(), 2) << "fp32 has no such fault";
  EXPECT_EQ(guarded.out.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(guarded.out.equal(wide.out.to(at::kBFloat16)));
  EXPECT_EQ(guarded.out.strides(), wide.out.strides());
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(guarded.gradients[i].scalar_type(), at::kBFloat16);
    EXPECT_TRUE(at::allclose(guarded.gradients[i].to(at::kFloat), wide.gradients[i], 2e-2, 2e-2)) << i;
  }
}

TEST_F(AttentionGuard, MasksComeAlong) {
  const AttentionGuardForTest guard;
  const at::Tensor additive = at::randn({40, 40}).to(at::kBFloat16), open = at::randn({40, 40}) > -1;
  EXPECT_TRUE(attend(inputs_, at::kBFloat16, additive)
                  .out.equal(attend(inputs_, at::kFloat, additive.to(at::kFloat)).out.to(at::kBFloat16)));
  EXPECT_TRUE(attend(inputs_, at::kBFloat16, open).out.equal(attend(inputs_, at::kFloat, open).out.to(at::kBFloat16)));
  EXPECT_TRUE(attend(inputs_, at::kBFloat16, {}, true).out.equal(attend(inputs_, at::kFloat, {}, true).out.to(at::kBFloat16)));
  EXPECT_EQ(guard.times(), 6);
}

TEST_F(AttentionGuard, OneThreadRacesWithNobody) {
  at::set_num_threads(1);
  const AttentionGuardForTest guard;
  (void)attend(inputs_, at::kBFloat16);
  EXPECT_EQ(guard.times(), 0);
}

}  // namespace
}  // namespace millrace::device
