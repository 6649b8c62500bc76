#include "millrace/doctor/clock_use.h"

#include "millrace/doctor/detail/sound_run.h"

namespace millrace::doctor {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// Adds `readings` readings, each of ten seconds.
void see(ClockUse& use, int readings, double mhz, double cores) {
  Sampler::MachineReading reading;
  reading.seconds = 10;
  reading.cpu_own = cores;
  reading.mhz = mhz;
  for (int i = 0; i < readings; ++i) use.add(reading);
}

TEST(ClockUse, ComparesTheLatestMinuteWithTheFirst) {
  ClockUse use;
  see(use, 6, 3000, 2);
  EXPECT_FALSE(use.latest()) << "there is nothing to compare with it";
  see(use, 5, 2100, 2);
  EXPECT_FALSE(use.latest()) << "no minute yet";
  see(use, 1, 2100, 2.2);
  const auto latest = use.latest(), of_the_run = use.of_the_run();
  ASSERT_TRUE(latest && of_the_run);
  EXPECT_EQ(latest->before_mhz, 3000);
  EXPECT_EQ(latest->now_mhz, 2100);
  EXPECT_NEAR(latest->lost, 0.3, 1e-9);
  EXPECT_NEAR(of_the_run->lost, 0.15, 1e-9) << "half of the run";
  see(use, 2, 3000, 2);
  EXPECT_EQ(use.latest().value_or(Evidence::CpuClock{}).now_mhz, 2100) << "a moment of relief";
  see(use, 1, 3000, 2);
  EXPECT_EQ(use.latest().value_or(Evidence::CpuClock{}).now_mhz, 3000);
}

TEST(ClockUse, ALoadThatIsAnotherOneIsNotCompared) {
  ClockUse use;
  see(use, 9, 800, 0.1);
  see(use, 6, 3000, 2);
  see(use, 9, 2000, 4);
  see(use, 9, 800, 0.1);
  EXPECT_FALSE(use.latest());
  see(use, 6, 2400, 2);
  see(use, 2, 800, 0.1);
  const auto latest = use.latest();
  ASSERT_TRUE(latest) << "a validation, a save";
  EXPECT_EQ(latest->before_mhz, 3000);
  EXPECT_EQ(latest->now_mhz, 2400);
  see(use, 1, 800, 0.1);
  EXPECT_FALSE(use.latest()) << "the run idles";
}

TEST(ClockUse, OfASystemThatTellsNoneNothingIsKnown) {
  ClockUse use;
  for (int i = 0; i < 20; ++i) use.add(Sampler::MachineReading{.seconds = 10, .cpu_own = 2});
  EXPECT_FALSE(use.latest());
  EXPECT_FALSE(use.of_the_run());
}

TEST(Rules, AClockThatFellUnderTheSameLoad) {
  Evidence e = sound();
  ClockUse use;
  see(use, 12, 3000, 2);
  e.clock = use.latest();
  ASSERT_TRUE(e.clock);
  EXPECT_THAT(findings_of(e), IsEmpty()) << "it is the same all the time, as a virtual machine tells it";
  see(use, 6, 2100, 2);
  e.clock = use.latest();
  const Finding finding = first(e, "clock_throttled");
  EXPECT_THAT(finding.what, HasSubstr("from 3000 MHz in the run's first minute to 2100 MHz"));
  EXPECT_THAT(finding.remedy, HasSubstr("cpupower frequency-info"));
  expect_gain(finding, 0.3);
  e = sound_with(Phase::validate, 9.5);
  e.clock = use.latest();
  expect_gain(first(e, "clock_throttled"), 0.15);
}

TEST(Rules, AClockThatFellByLessThanAFifthOrBesideAGpuIsNoFinding) {
  Evidence e = sound();
  e.clock = Evidence::CpuClock{.before_mhz = 3000, .now_mhz = 2450, .lost = 0.18};
  EXPECT_THAT(findings_of(e), IsEmpty());
  e.clock->now_mhz = 2000;
  EXPECT_EQ(findings_of(e).size(), 1U);
  e.on_gpu = true;
  EXPECT_THAT(findings_of(e), IsEmpty());
}

}  // namespace
}  // namespace millrace::doctor
