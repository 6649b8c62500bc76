#include "millrace/precision/loss_scale.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "millrace/base/error.h"
#include "millrace/precision/overflow_rule.h"
#include "tests/support/refusal.h"

namespace millrace::precision {
namespace {

at::Tensor number(double value) { return at::scalar_tensor(value, at::kFloat); }

TEST(LossScale, HalvesAfterAnOverflowAndDoublesAfterEnoughGoodSteps) {
  LossScale scale(at::kCPU, {.initial = 1024, .growth_interval = 3});
  const auto after = [&](double found_inf) {
    scale.update(number(found_inf));
    return scale.scale().item<double>();
  };
  EXPECT_EQ(after(1), 512);
  EXPECT_EQ(after(0), 512);
  EXPECT_EQ(after(0), 512);
  EXPECT_EQ(after(0), 1024);
  EXPECT_EQ(after(0), 1024);
  EXPECT_EQ(after(1), 512) << "an overflow forgets the good steps before it";
  EXPECT_EQ(after(0), 512);
  EXPECT_EQ(after(0), 512);
  EXPECT_EQ(after(0), 1024);
}

TEST(LossScale, NeverGrowsToInfinity) {
  LossScale scale(at::kCPU, {.initial = 0x1p127, .growth_interval = 1});
  scale.update(number(0));
  EXPECT_EQ(scale.scale().item<double>(), 0x1p127);
}

TEST(LossScale, GoesOnFromItsState) {
  LossScale a(at::kCPU, {.growth_interval = 3});
  for (const double found : {1.0, 0.0, 0.0}) a.update(number(found));
  LossScale b(at::kCPU, {.growth_interval = 3});
  b.load_state(a.state());
  for (LossScale* each : {&a, &b}) each->update(number(0));
  EXPECT_EQ(a.scale().item<double>(), 65536.0);
  EXPECT_EQ(b.scale().item<double>(), 65536.0);
}

TEST(LossScale, AnIncompleteStateIsRefusedAndChangesNothing) {
  LossScale scale(at::kCPU);
  State state = {.tensors = {{"loss_scale", number(8)}}};
  const auto refusal = [&] { return millrace::refusal<SnapshotError>([&] { scale.load_state(state); }); };
  EXPECT_EQ(refusal(),
            "SnapshotError  the state of the loss scale lacks the number \"growth_tracker\"\n"
            "  where    snapshot, part \"optimizer\"\n"
            "  next     use an older snapshot, or start with --fresh");
  state.tensors["growth_tracker"] = at::zeros({2});
  EXPECT_THAT(refusal(), testing::HasSubstr("lacks the number \"growth_tracker\""));
  EXPECT_EQ(scale.scale().item<double>(), 65536.0);
}

// Passes steps to fp16's rule one by one, each with the scale that the previous step left.
bool gives_up(OverflowRule& rule, LossScale& scale, int steps, const std::function<bool(int)>& overflows) {
  for (int i = 0; i < steps; ++i) {
    const at::Tensor bad = number(overflows(i) ? 1 : 0);
    scale.update(bad);
    rule.update(bad, number(0), scale.scale());
  }
  return rule.given_up();
}

TEST(OverflowRule, LetsTheScaleFindItsPlace) {
  OverflowRule rule(at::kCPU, at::kHalf);
  LossScale scale(at::kCPU);
  EXPECT_FALSE(gives_up(rule, scale, 16, [](int) { return true; }));  // the scale falls to 1
  EXPECT_FALSE(gives_up(rule, scale, 500, [](int) { return false; }));
  EXPECT_TRUE(gives_up(rule, scale, 1, [](int) { return true; }));
  EXPECT_EQ(rule.reason(), "the loss scale fell to 0.5");
  EXPECT_TRUE(gives_up(rule, scale, 5000, [](int) { return false; })) << "it does not change its mind";
}

TEST(OverflowRule, GivesUpWhenTooManyStepsOverflow) {
  for (const int every : {3, 6}) {
    OverflowRule rule(at::kCPU, at::kHalf);
    LossScale scale(at::kCPU, {.growth_interval = 2});
    EXPECT_EQ(gives_up(rule, scale, 300, [every](int i) { return i % every == 0; }), every == 3);
    if (every == 3) {
      EXPECT_THAT(rule.reason(), testing::HasSubstr(" % of the last steps overflowed"));
    }
  }
}

TEST(OverflowRule, Bf16MayFailTwiceInARow) {
  OverflowRule rule(at::kCPU, at::kBFloat16);
  for (const double in_a_row : {1, 2, 0, 1, 2}) rule.update(number(in_a_row > 0), number(in_a_row), {});
  EXPECT_FALSE(rule.given_up());
  OverflowRule resumed(at::kCPU, at::kBFloat16);
  resumed.load_state(rule.state());
  rule.update(number(1), number(3), {});
  EXPECT_TRUE(rule.given_up());
  EXPECT_EQ(rule.reason(), "3 steps in a row were not finite");
  EXPECT_FALSE(resumed.given_up());
  resumed.load_state(rule.state());
  EXPECT_TRUE(resumed.given_up());
}

}  // namespace
}  // namespace millrace::precision
