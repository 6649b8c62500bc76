#include "millrace/train/step/trial_time.h"

#include <gtest/gtest.h>

#include <cmath>

namespace millrace {
namespace {

class TrialTimeTest : public testing::Test {
 protected:
  TrialTime of(double steps) {
    return TrialTime(steps, [this] { return now_; });
  }
  double now_ = 1000;
};

TEST_F(TrialTimeTest, HasNoLimitBeforeAStepIsKnownNorForARunWithoutAnEnd) {
  TrialTime time = of(10);
  TrialTime endless = of(0);
  endless.made_step(60);
  now_ += 1e6;
  EXPECT_NO_THROW(time.begin_step());
  EXPECT_NO_THROW(endless.begin_step());
  EXPECT_TRUE(std::isinf(TrialTime().left()));
}

TEST_F(TrialTimeTest, AllowsThirtySecondsToAnyRun) {
  TrialTime time = of(10);
  time.made_step(4);  // the run then takes 40 s
  now_ += 26;
  EXPECT_DOUBLE_EQ(time.left(), 4);
  EXPECT_NO_THROW(time.begin_step());
  now_ += 0.4;
  EXPECT_THROW(time.begin_step(), TrialsGivenUp) << "the step would end at 30.4 s";
  EXPECT_EQ(time.reason(),
            "trials were given up after 26 s, because they may take at most 10 % of the run's 40 s, or 30 s if that is more");
}

TEST_F(TrialTimeTest, AllowsATenthOfALongRunByItsFastestStep) {
  TrialTime time = of(1000);
  time.made_step(9);  // the first step also sets things up
  time.made_step(3);
  time.made_step(30);  // a step in which kernels were timed
  EXPECT_DOUBLE_EQ(time.step_seconds(), 3);
  now_ += 297;
  EXPECT_NO_THROW(time.begin_step());
  now_ += 1;
  EXPECT_THROW(time.begin_step(), TrialsGivenUp);
}

}  // namespace
}  // namespace millrace
