#include "millrace/system/signals.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <thread>

#include "millrace/base/clock.h"
#include "millrace/base/doing.h"
#include "millrace/system/crash.h"

namespace millrace {
namespace {

// Restores default actions. If a script started the tests with &, SIGINT is ignored and would stay ignored.
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

TEST(SignalsDeathTest, BeforeTheFirstStepAWorkThatDoesNotAskIsEnded) {
  EXPECT_EXIT(
      {
        forget_what_was_ignored();
        install_signal_handlers();
        const BeforeFirstStep start(STDERR_FILENO, 1);
        ::raise(SIGTERM);
        for (;;) ::pause();
      },
      ::testing::ExitedWithCode(143), "^stopped by SIGTERM before the first step; the same command starts again");
}

TEST(SignalsDeathTest, ASignalBeforeTheStartCountsToo) {
  EXPECT_EXIT(
      {
        forget_what_was_ignored();
        install_signal_handlers();
        ::raise(SIGINT);
        const BeforeFirstStep start(-1, 1);
        for (;;) ::pause();
      },
      ::testing::ExitedWithCode(130), "^$");
}

TEST(SignalsDeathTest, AfterTheFirstStepTheLoopHasAllTheTimeItTakes) {
  EXPECT_EXIT(
      {
        forget_what_was_ignored();
        install_signal_handlers();
        const BeforeFirstStep start(STDERR_FILENO, 1);
        ::raise(SIGTERM);
        first_step_is_made();
        stop_if_signalled();
        ::_exit(::alarm(0) == 0 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "^$");
}

TEST(Signals, WorkThatAsksIsLeftInTheThreadOfTheStart) {
  forget_what_was_ignored();
  install_signal_handlers();
  reset_pending_signal_for_test();
  EXPECT_NO_THROW(stop_if_signalled()) << "no start";
  {
    const BeforeFirstStep start(-1);
    const std::uint64_t beat = doing_beat();
    EXPECT_NO_THROW(stop_if_signalled()) << "no signal";
    EXPECT_NE(doing_beat(), beat) << "a launcher must see that the work moves";
    ::raise(SIGHUP);
    std::thread([] { EXPECT_NO_THROW(stop_if_signalled()); }).join();
    try {
      stop_if_signalled();
      ADD_FAILURE() << "it went on";
    } catch (const Stopped& stopped) {
      EXPECT_EQ(stopped.signal, SIGHUP);
      EXPECT_THAT(stopped_text(stopped.signal), testing::StartsWith("stopped by SIGHUP before the first step; "));
    }
  }
  EXPECT_NO_THROW(stop_if_signalled());
  EXPECT_EQ(::alarm(0), 0U) << "nothing ends the process later";
  reset_pending_signal_for_test();
}

// The end status of a child that received SIGTERM from another process and then from its parent.
int end_after_both() {
  int go[2] = {}, ready[2] = {};
  EXPECT_EQ(::pipe(go) + ::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    forget_what_was_ignored();
    install_signal_handlers();
    char word = 'r';
    (void)!::write(ready[1], &word, 1);
    while (::read(go[0], &word, 1) < 0 && errno == EINTR) {
    }
    ::_exit(pending_signal());
  }
  char word = 0;
  EXPECT_EQ(::read(ready[0], &word, 1), 1);
  const pid_t other = ::fork();
  if (other == 0) ::_exit(::kill(child, SIGTERM));
  ::waitpid(other, nullptr, 0);
  ::kill(child, SIGTERM);
  EXPECT_EQ(::write(go[1], &word, 1), 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  for (const int end : {go[0], go[1], ready[0], ready[1]}) ::close(end);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Signals, WhatALauncherHandsOnIsTheSignalThatCameAlready) { EXPECT_EQ(end_after_both(), SIGTERM) << "still there, to save"; }

TEST(SignalsDeathTest, ASecondOneLeavesALineInTheLogOfTheRun) {
  const std::string file = testing::TempDir() + "second-signal-log-" + std::to_string(::getpid());
  EXPECT_EXIT(
      {
        forget_what_was_ignored();
        install_signal_handlers();
        set_crash_log(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600));
        ::raise(SIGTERM);
        ::raise(SIGINT);
      },
      ::testing::ExitedWithCode(130), "");
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  EXPECT_TRUE(line.starts_with("{\"kind\":\"signal\",\"text\":\"a second signal to stop (SIGINT)")) << line;
  ::unlink(file.c_str());
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
