#include "millrace/train/assembly/layout_trial.h"

#include <gtest/gtest.h>

#include <limits>

namespace millrace {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

LayoutRounds rounds(double ms, double loss, double worst = 0) {
  LayoutRounds all;
  all.fill({.step_ms = ms, .loss = loss, .gradient_norm = 1, .worst_gradient = worst, .worst_parameter = "conv1.weight"});
  return all;
}

TEST(LayoutTrial, TheTimeDecidesWhereValuesAgree) {
  EXPECT_TRUE(judge_layouts(rounds(100, 2), rounds(90, 2)).channels_last);
  EXPECT_EQ(judge_layouts(rounds(100, 2), rounds(90, 2)).reason,
            "a trial measured 90.0 ms a step channels-last, 100.0 contiguous");
  EXPECT_FALSE(judge_layouts(rounds(100, 2), rounds(99, 2)).channels_last);
}

TEST(LayoutTrial, NanIsAVerdictAndNeverAChoice) {
  const auto expect = [](const LayoutRounds& plain, const LayoutRounds& last, bool channels_last, const char* reason) {
    const LayoutVerdict verdict = judge_layouts(plain, last);
    EXPECT_EQ(verdict.channels_last, channels_last);
    EXPECT_EQ(verdict.reason, reason);
  };
  LayoutRounds once = rounds(10, 2);
  once[1].gradient_norm = kNan;
  expect(rounds(100, 2), once, false, "a trial step gives finite values in contiguous but not in channels-last layout");
  expect(once, rounds(100, 2), true, "a trial step gives finite values in channels-last but not in contiguous layout");
  expect(rounds(10, kNan), once, false, "a trial step gives finite values in neither layout");
  once = rounds(10, 2);
  once[0].others.push_back({.loss = kNan});
  expect(rounds(100, 2), once, false, "a trial step gives finite values in contiguous but not in channels-last layout");
}

TEST(LayoutTrial, AFormatIsJudgedInTheLayoutThatIsFasterForIt) {
  const precision::Trial slow{.step_ms = 100, .loss = 2}, fast{.step_ms = 90, .loss = 2}, none{.step_ms = 10, .loss = kNan};
  EXPECT_EQ(&better_of(slow, fast), &fast);
  EXPECT_EQ(&better_of(fast, slow), &fast);
  EXPECT_EQ(&better_of(slow, none), &slow);
  EXPECT_EQ(&better_of(none, slow), &slow);
  EXPECT_EQ(&better_of(none, none), &none);
}

TEST(LayoutTrial, ValuesThatDifferAreOut) {
  EXPECT_EQ(judge_layouts(rounds(100, 2), rounds(10, 2.1)).reason,
            "losses of a trial step differ: 2.1 channels-last, 2 contiguous");
  LayoutRounds once = rounds(10, 2);
  once[2].worst_gradient = 0.5;
  once[2].worst_parameter = "layer2.conv1.weight";
  const LayoutVerdict verdict = judge_layouts(rounds(100, 2), once);
  EXPECT_FALSE(verdict.channels_last);
  EXPECT_EQ(
      verdict.reason,
      "in a trial step, the gradient of layer2.conv1.weight in channels-last layout differs by 50 % from that in contiguous "
      "layout");
}

}  // namespace
}  // namespace millrace
