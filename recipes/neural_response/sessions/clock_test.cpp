#include "recipes/neural_response/sessions/clock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace millrace::recipes::neural_response {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::int64_t kLongBins = 480, kTrial = 120;

std::vector<std::int64_t> trials() {
  std::vector<std::int64_t> of;
  for (std::int64_t t = 0; t < kLongBins; ++t) of.push_back(3 + t / kTrial);
  return of;
}

std::vector<double> clock_from(double first, double hz = 240) {
  std::vector<double> seconds;
  for (std::int64_t t = 0; t < kLongBins; ++t) seconds.push_back(first + static_cast<double>(t) / hz);
  return seconds;
}

TEST(Clock, ASoundOneHasAStepAndNoSeam) {
  std::vector<double> seconds = clock_from(12.5);
  for (std::int64_t t = 2 * kTrial; t < kLongBins; ++t)
    seconds[static_cast<std::size_t>(t)] += 100;  // a jump between two trials,
                                                  // which is allowed
  const ClockSeen seen = look_at_clock(seconds, trials());
  EXPECT_NEAR(seen.step_seconds, 1.0 / 240, 1e-12);
  EXPECT_THAT(seen.seams, IsEmpty());
}

TEST(Clock, WhereItGoesBackOrJumpsWithinATrialIsFound) {
  std::vector<double> back = clock_from(0);
  for (std::int64_t t = 180; t < kLongBins; ++t) back[static_cast<std::size_t>(t)] -= 180.0 / 240;
  const ClockSeen seen = look_at_clock(back, trials());
  EXPECT_THAT(seen.seams, ElementsAre(180));
  EXPECT_THAT(seen.worst, HasSubstr("go back by 0.746 s at bin 180, in trial 4"));
  std::vector<double> jump = clock_from(0);
  for (std::int64_t t = 50; t < kLongBins; ++t) jump[static_cast<std::size_t>(t)] += 100;
  jump[300] = std::nan("");
  EXPECT_THAT(look_at_clock(jump, trials()).seams, ElementsAre(50, 300, 301));
  EXPECT_THAT(look_at_clock(jump, trials()).worst, HasSubstr("are no number at bin 300, in trial 5"));
}

TEST(Clock, OneThatRunsBackwardsOrStandsStillHasNoSeams) {
  std::vector<double> reversed = clock_from(0);
  std::reverse(reversed.begin(), reversed.end());
  EXPECT_LT(look_at_clock(reversed, trials()).step_seconds, 0);
  EXPECT_EQ(look_at_clock(std::vector<double>(kLongBins), trials()).step_seconds, 0);
  EXPECT_EQ(look_at_clock({}, {}).step_seconds, 0);
}

TEST(Clock, RoundingToFloat32LateInASessionIsNoSeam) {
  for (const double first : {100.0, 3'600.0, 9'000.0, 20'000.0}) {
    std::vector<double> rounded;
    for (const double value : clock_from(first)) rounded.push_back(static_cast<double>(static_cast<float>(value)));
    const ClockSeen seen = look_at_clock(rounded, trials());
    EXPECT_THAT(seen.seams, IsEmpty()) << first;
    EXPECT_LT(std::abs(seen.step_seconds * 240 - 1), 0.01 + seen.doubt) << first;
    EXPECT_LT(seen.doubt, 0.02) << first;
  }
}

}  // namespace
}  // namespace millrace::recipes::neural_response
