#include "millrace/device/shared_cores.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <thread>

#include "millrace/device/device.h"

namespace millrace::device {
namespace {

TEST(SharedCores, WaitsAreShortWhileOthersWantTheCoresAndAWhileAfter) {
  SharedCores::WaitRule rule;
  EXPECT_FALSE(rule.after(0.0));
  EXPECT_FALSE(rule.after(0.6));
  EXPECT_FALSE(rule.after(0.18)) << "a little, or a moment, is no reason";
  EXPECT_FALSE(rule.after(0.6));
  EXPECT_TRUE(rule.after(0.6));
  EXPECT_TRUE(rule.after(std::nullopt)) << "no word is no news";
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(rule.after(0.0));
  EXPECT_TRUE(rule.after(0.12)) << "not alone yet: counted anew";
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(rule.after(0.0));
  EXPECT_FALSE(rule.after(0.0));
}

TEST(SharedCores, LooksAreAsExactOnManyCpusAsOnTwo) {
  EXPECT_DOUBLE_EQ(seconds_between_looks(1), 0.12);
  EXPECT_DOUBLE_EQ(seconds_between_looks(2), 0.12);
  EXPECT_DOUBLE_EQ(seconds_between_looks(32), 0.48);
}

// CPU seconds of this process. The main thread sleeps between parallel loops, while OpenMP's other thread waits for them.
double seconds_of_waiting() {
  const auto cpu = [] {
    timespec time{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double before = cpu();
  for (int i = 0; i < 10; ++i) {
    at::parallel_for(0, 2, 1, [](std::int64_t, std::int64_t) {});
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return cpu() - before;
}

// Exit status 0: the threads slept while there were idle threads, and spun before and after.
int sleeping_with_idle_threads() {
  set_threads(2);
  const double spinning = seconds_of_waiting();
  double sleeping = 0;
  {
    const SharedCores::ShortWaits waits;
    sleeping = seconds_of_waiting();
  }
  const double again = seconds_of_waiting();
  std::fprintf(stderr, "CPU seconds: %.3f, %.3f, %.3f\n", spinning, sleeping, again);
  return sleeping < spinning / 2 && sleeping < again / 2 ? 0 : 1;
}

// Runs in a new process, because OpenMP reads only once how long to spin.
TEST(SharedCores, IdleThreadsMakeOpenmpSleep) {
  if (cpu_info().logical_cores < 2) GTEST_SKIP() << "two threads of one CPU never spin for long";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  ::setenv("GOMP_SPINCOUNT", "INFINITY", 1);
  EXPECT_EXIT(std::exit(sleeping_with_idle_threads()), testing::ExitedWithCode(0), "CPU seconds");
  ::unsetenv("GOMP_SPINCOUNT");
}

}  // namespace
}  // namespace millrace::device
