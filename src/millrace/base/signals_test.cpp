#include "millrace/base/signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "millrace/base/clock.h"

namespace millrace {
namespace {

// Where the tests were started with & by a script, SIGINT is ignored, and would stay so.
void forget_what_was_ignored() {
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) ::signal(number, SIG_DFL);
}

TEST(Signals, TheFirstIsKept) {
  forget_what_was_ignored();
  install_signal_handlers();
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) {
    reset_pending_signal_for_test();
    EXPECT_EQ(pending_signal(), 0);
    ::raise(number);
    EXPECT_EQ(pending_signal(), number);
  }
  reset_pending_signal_for_test();
  EXPECT_EQ(exit_code_for(SIGTERM), 143);
  EXPECT_STREQ(signal_name(SIGHUP), "SIGHUP");
  EXPECT_STREQ(signal_name(SIGSEGV), "signal");
}

TEST(SignalsDeathTest, WhatWasIgnoredAtTheStartStaysIgnored) {
  EXPECT_EXIT(
      {
        forget_what_was_ignored();
        ::signal(SIGHUP, SIG_IGN);
        ::signal(SIGINT, SIG_IGN);
        install_signal_handlers();
        ::raise(SIGHUP);
        ::raise(SIGINT);
        const bool none = pending_signal() == 0;
        ::raise(SIGTERM);
        ::_exit(none && pending_signal() == SIGTERM ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(SignalsDeathTest, ASecondOneLeavesAtOnce) {
  EXPECT_EXIT(
      {
        forget_what_was_ignored();
        install_signal_handlers();
        ::raise(SIGTERM);
        ::raise(SIGINT);
      },
      ::testing::ExitedWithCode(130), "");
}

TEST(Signals, AClosedPipeIsAFailedWrite) {
  install_signal_handlers();
  int ends[2] = {};
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  EXPECT_EQ(::write(ends[1], "x", 1), -1);
  EXPECT_EQ(errno, EPIPE);
  ::close(ends[1]);
}

TEST(Signals, WorkersBlockThem) {
  std::thread([] {
    block_signals_in_this_thread();
    sigset_t set;
    ::pthread_sigmask(SIG_BLOCK, nullptr, &set);
    for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) EXPECT_EQ(::sigismember(&set, number), 1);
    EXPECT_EQ(::sigismember(&set, SIGSEGV), 0);
  }).join();
  sigset_t set;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &set);
  EXPECT_EQ(::sigismember(&set, SIGTERM), 0);
}

TEST(Clock, RunsForward) {
  const std::int64_t before = steady_nanoseconds();
  const double alive = seconds_since_process_start();
  EXPECT_GE(steady_nanoseconds(), before);
  EXPECT_GE(seconds_since_process_start(), alive);
  EXPECT_GT(alive, -0.02);  // the kernel counts the start in ticks of 10 ms
  EXPECT_LT(alive, 3600);
  EXPECT_GT(unix_seconds(), 1.7e9);
}

}  // namespace
}  // namespace millrace
