#include "millrace/optim/spike.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "millrace/base/error.h"

namespace millrace::optim {
namespace {

constexpr int kWindow = SpikeRule::kWindow;

// Values that vary around 2 and 5, with standard deviations .07 and .14.
at::Tensor usual(int step) {
  const double ripple = std::sin(step * 1.7);
  return at::tensor({2.0 + 0.1 * ripple, 5.0 + 0.2 * ripple}, at::kDouble);
}

bool judged(SpikeRule& rule, const at::Tensor& values, bool bad = false) {
  return rule.judge(values, at::scalar_tensor(bad ? 1.0 : 0.0, at::kFloat)).item<float>() != 0.0F;
}

SpikeRule filled(int steps = kWindow) {
  SpikeRule rule(at::kCPU, 2, 6.0);
  for (int i = 0; i < steps; ++i) EXPECT_FALSE(judged(rule, usual(i))) << i;
  return rule;
}

TEST(SpikeRule, KnowsASpikeFromARipple) {
  SpikeRule rule = filled();
  for (int i = kWindow; i < 500; ++i) ASSERT_FALSE(judged(rule, usual(i))) << i;
  EXPECT_TRUE(judged(rule, at::tensor({2.6, 5.0}, at::kDouble)));
  EXPECT_TRUE(judged(rule, at::tensor({2.0, 6.2}, at::kDouble)));
  EXPECT_FALSE(judged(rule, at::tensor({1.0, 0.0}, at::kDouble))) << "downwards is no spike";
  EXPECT_FALSE(judged(rule, usual(0)));
}

TEST(SpikeRule, BeginsWithAFullWindow) {
  SpikeRule rule = filled(kWindow - 1);
  EXPECT_FALSE(judged(rule, at::tensor({100.0, 5.0}, at::kDouble)));
}

TEST(SpikeRule, AStepThatDoesNotCountLeavesItAlone) {
  SpikeRule rule = filled();
  const State before = rule.state();
  const at::Tensor window = before.tensors.at("spike_window").clone();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(judged(rule, at::tensor({nan, 1e30}, at::kDouble), /*bad=*/true));
  EXPECT_TRUE(rule.state().tensors.at("spike_window").equal(window));
  EXPECT_EQ(rule.state().tensors.at("spike_seen").item<double>(), kWindow);
}

// A term's report may be infinite, or NaN, in a step whose gradients are finite.
TEST(SpikeRule, ANumberThatIsNotFiniteDoesNotBlindIt) {
  for (const double value : {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()}) {
    SpikeRule rule = filled();
    EXPECT_FALSE(judged(rule, at::tensor({2.0, value}, at::kDouble))) << value;
    EXPECT_TRUE(judged(rule, at::tensor({2.0, 6.2}, at::kDouble))) << value;
    EXPECT_FALSE(judged(rule, usual(0))) << value;
  }
  SpikeRule rule = filled();
  EXPECT_TRUE(judged(rule, at::tensor({2.0, std::numeric_limits<double>::infinity()}, at::kDouble)));
  EXPECT_TRUE(judged(rule, at::tensor({2.0, 6.2}, at::kDouble)));
}

TEST(SpikeRule, ALastingChangeOfLevelIsSoonUsual) {
  SpikeRule rule = filled();
  int spikes = 0;
  for (int i = 0; i < 200; ++i) spikes += judged(rule, usual(i) * 10.0) ? 1 : 0;
  EXPECT_GT(spikes, 0);
  EXPECT_LT(spikes, 24);
}

TEST(SpikeRule, AConstantMayMoveByAFewPercent) {
  SpikeRule rule(at::kCPU, 1, 6.0);
  for (int i = 0; i < kWindow; ++i) judged(rule, at::tensor({3.0}, at::kDouble));
  EXPECT_FALSE(judged(rule, at::tensor({3.0 * 1.05}, at::kDouble)));
  EXPECT_TRUE(judged(rule, at::tensor({3.0 * 1.10}, at::kDouble)));
}

TEST(SpikeRule, GoesOnFromItsStateAndRefusesAnother) {
  SpikeRule a = filled();
  SpikeRule b(at::kCPU, 2, 6.0);
  b.load_state(a.state());
  EXPECT_TRUE(judged(b, at::tensor({3.0, 5.0}, at::kDouble)));
  SpikeRule other(at::kCPU, 4, 6.0);
  try {
    other.load_state(a.state());
    FAIL();
  } catch (const SnapshotError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("\"spike_window\" is missing or of another shape"));
  }
}

}  // namespace
}  // namespace millrace::optim
