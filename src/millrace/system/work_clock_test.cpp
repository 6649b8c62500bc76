#include "millrace/system/work_clock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <ctime>
#include <thread>

namespace millrace {
namespace {

void work() {
  volatile double x = 1;
  for (int i = 0; i < 3'000'000; ++i) x = x * 1.0000001 + 1e-9;
}

double this_thread_ms() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

TEST(WorkClock, WorkKeepsItsThreadOnACore) {
  WorkClock clock;
  clock.start();
  work();
  const WorkClock::Time time = clock.stop();
  EXPECT_GT(time.busy, 0);
  EXPECT_LE(time.busy, time.wall + 0.1);  // the two clocks are not read at the same moment
}

TEST(WorkClock, WaitingIsNotWork) {
  WorkClock clock;
  clock.start();
  timespec pause{.tv_sec = 0, .tv_nsec = 50'000'000};
  ::nanosleep(&pause, nullptr);
  const WorkClock::Time time = clock.stop();
  EXPECT_GE(time.wall, 50);
  EXPECT_LT(time.busy, 25);
}

TEST(WorkClock, TheBusiestThreadCounts) {
  std::atomic<int> stage{0};
  std::thread other([&] {
    stage = 1;
    while (stage != 2) std::this_thread::yield();
    const double begin = this_thread_ms();
    while (this_thread_ms() < begin + 20) continue;
    stage = 3;
    stage.notify_one();
    while (stage != 4) std::this_thread::yield();
  });
  while (stage != 1) std::this_thread::yield();
  WorkClock clock;
  clock.start();
  stage = 2;
  stage.wait(2);
  EXPECT_GE(clock.stop().busy, 20);  // this thread slept, so another thread was busy
  stage = 4;
  other.join();
  clock.start();  // the other thread has ended by now
  work();
  EXPECT_GT(clock.stop().busy, 0);
}

TEST(Compare, TheLeastTimesOfRoundsThatHadTheCores) {
  const std::vector<WorkClock::Time> first{{12, 12}, {10, 10}, {30, 11}};
  const std::vector<WorkClock::Time> second{{9, 9}, {40, 8}};
  const Comparison found = compare(first, second);
  EXPECT_EQ(found.first_ms, 10);
  EXPECT_EQ(found.second_ms, 9);
  EXPECT_FALSE(found.disturbed);
}

TEST(Compare, WhereOthersHadTheCoresTheWorkOfTheBusiestThreadDecides) {
  const std::vector<WorkClock::Time> first{{25, 10}, {19, 11}};
  const std::vector<WorkClock::Time> second{{14, 12}, {12.5, 12.4}};
  const Comparison found = compare(first, second);
  EXPECT_EQ(found.first_ms, 10);
  EXPECT_EQ(found.second_ms, 12);
  EXPECT_TRUE(found.disturbed);
}

}  // namespace
}  // namespace millrace
