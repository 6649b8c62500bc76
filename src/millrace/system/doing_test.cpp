#include "millrace/base/doing.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <utility>

#include "millrace/system/crash.h"
#include "millrace/system/foreign_call.h"

namespace millrace {
namespace {

std::string now() {
  std::array<char, 512> text{};
  const std::size_t size = describe_doing(text.data(), text.size());
  EXPECT_EQ(size, std::string(text.data()).size());
  return text.data();
}

TEST(Doing, NamesStepPhaseSubjectAndOperation) {
  EXPECT_EQ(now(), "");
  doing_step(12);
  EXPECT_EQ(now(), "step 12");
  {
    const Doing subject(Doing::Level::subject, "generator");
    const Doing phase(Doing::Level::phase, "backward");
    EXPECT_EQ(now(), "step 12, backward of generator");
    doing_operation("aten::convolution_backward", "[2, 8, 4, 4, 4] x [16, 8, 3, 3, 3]");
    EXPECT_EQ(now(), "step 12, backward of generator, aten::convolution_backward [2, 8, 4, 4, 4] x [16, 8, 3, 3, 3]");
    doing_operation("aten::mm", "");
    EXPECT_EQ(now(), "step 12, backward of generator, aten::mm");
  }
  EXPECT_EQ(now(), "step 12") << "an operation ends with its phase";
  doing_step(0);
  const Doing task(Doing::Level::task, "trial of bf16");
  EXPECT_EQ(now(), "trial of bf16");
}

TEST(Doing, ScopesOfAnotherThreadDoNotComeBetween) {
  const Doing outer(Doing::Level::phase, "forward");
  std::thread([] {
    const Doing other(Doing::Level::phase, "validation");
    EXPECT_EQ(now(), "forward");
  }).join();
  EXPECT_EQ(now(), "forward");
}

// The watchdog's thread may read a text after its owner is gone.
TEST(Doing, TextsAreCopied) {
  std::string task = "the save of step 12", subject = "generator";
  const Doing outer(Doing::Level::task, task.c_str());
  const Doing of(Doing::Level::subject, subject.c_str());
  task.assign(task.size(), 'x');
  subject.assign(subject.size(), 'x');
  EXPECT_EQ(now(), "the save of step 12, generator");
  {
    const Doing inner(Doing::Level::task, "a trial of bf16");
    EXPECT_STREQ(doing_now(Doing::Level::task).data(), "a trial of bf16");
  }
  EXPECT_EQ(now(), "the save of step 12, generator");
  const Doing long_one(Doing::Level::task, std::string(5000, 'y').c_str());
  EXPECT_EQ(doing_now(Doing::Level::task).data(), std::string(63, 'y'));
}

TEST(Doing, EveryChangeMovesTheBeat) {
  std::uint64_t last = doing_beat();
  const auto has_moved = [&last] { return std::exchange(last, doing_beat()) != last; };
  EXPECT_FALSE(has_moved());
  {
    const Doing phase(Doing::Level::phase, "forward");
    EXPECT_TRUE(has_moved());
    doing_operation("aten::mm", "");
    EXPECT_TRUE(has_moved());
  }
  EXPECT_TRUE(has_moved());
  doing_moved();
  EXPECT_TRUE(has_moved());
}

TEST(Doing, LongTextsAreCut) {
  const std::string shapes(5000, 'x');
  const Doing phase(Doing::Level::phase, "forward");
  doing_operation("aten::cat", shapes.c_str());
  EXPECT_EQ(now().size(), std::string("forward, aten::cat ").size() + 255);
  std::array<char, 10> small{};
  EXPECT_EQ(describe_doing(small.data(), small.size()), 9U);
  EXPECT_STREQ(small.data(), "forward, ");
  EXPECT_EQ(describe_doing(small.data(), 0), 0U);
}

class Crash : public testing::TestWithParam<std::pair<int, const char*>> {};

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_P(Crash, SaysWhatWasDoneAndEndsAsBefore) {
  const auto [number, text] = GetParam();
  EXPECT_EXIT(
      {
        install_crash_line();
        doing_step(3);
        const Doing phase(Doing::Level::phase, "backward");
        doing_operation("aten::convolution_backward", "[2, 2]");
        ::raise(number);
        ::_exit(0);
      },
      testing::KilledBySignal(number),
      std::string("^crash: ") + text +
          " in step 3, backward, aten::convolution_backward .2, 2.\n  where    the main thread\n[^\n]*.0x[^\n]*\n"
          "  next     try --precision.dtype=fp32");
}
INSTANTIATE_TEST_SUITE_P(Signals, Crash,
                         testing::Values(std::pair{SIGSEGV, "a segmentation fault .SIGSEGV."},
                                         std::pair{SIGABRT, "an abort .SIGABRT."},
                                         std::pair{SIGILL, "an illegal instruction .SIGILL."}));

TEST(CrashDeathTest, AWriteThroughANullPointerOutsideOfARunIsToReport) {
  EXPECT_EXIT(
      {
        install_crash_line();
        volatile int* volatile nowhere = nullptr;
        *nowhere = 1;
        ::_exit(0);
      },
      testing::KilledBySignal(SIGSEGV),
      "^crash: a segmentation fault .SIGSEGV.\n  where    the main thread\n[^\n]*.0x[^\n]*\n  next     if it happens again, "
      "report it "
      "with the command line and these addresses; the lines, of a build with -g1: addr2line -Cfipe /[^ ]* 0x");
}

std::string text_of(const std::string& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// Where this is called from, the report says the call, not what the loop is doing.
TEST(CrashDeathTest, InForeignCodeTheCallAndTheThreadAreNamed) {
  struct Call {
    static void describe(const void* number, HandlerText& text) noexcept {
      text.add("read() of sample ").add(*static_cast<const std::int64_t*>(number));
    }
  };
  const std::string file = testing::TempDir() + "crash-log-" + std::to_string(::getpid());
  EXPECT_EXIT(
      {
        install_crash_line();
        set_crash_log(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600));
        doing_step(3);
        std::thread([] {
          ::pthread_setname_np(::pthread_self(), "a-reader");
          const std::int64_t sample = 31;
          const ForeignCall outer("not this");
          const ForeignCall inner(&Call::describe, &sample);
          ::raise(SIGSEGV);
        }).join();
      },
      testing::KilledBySignal(SIGSEGV),
      "^crash: a segmentation fault .SIGSEGV. in read.. of sample 31\n  where    thread a-reader; the run was in step "
      "3\n[^\n]*.0x[^\n]*\n"
      "  next     look there for an index out of range");
  const std::string log = text_of(file);
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 2) << log;
  const std::string last = log.substr(log.find('\n') + 1);
  EXPECT_EQ(
      last.find("{\"kind\":\"crash\",\"text\":\"a segmentation fault (SIGSEGV) in read() of sample 31; thread a-reader; the run"),
      0U)
      << log;
  EXPECT_TRUE(last.ends_with("\"}\n")) << log;
  ::unlink(file.c_str());
}

// Each call gets memory of the one before, so that no compiler makes a loop of them.
[[gnu::noinline]] int calls_itself(const volatile int* goes_on, const volatile char* before) {
  std::array<volatile char, 4096> room{};
  room[0] = *before;
  return *goes_on == 0 ? 0 : calls_itself(goes_on, room.data()) + room[0];
}

TEST(CrashDeathTest, AStackThatHasRunOutIsNamedInEveryThread) {
  static volatile int goes_on = 1;
  static volatile char nothing = 0;
  EXPECT_EXIT(
      {
        install_crash_line();
        std::thread([] {
          ::pthread_setname_np(::pthread_self(), "a-reader");
          const CrashStack stack;
          ::_exit(calls_itself(&goes_on, &nothing));
        }).join();
      },
      testing::KilledBySignal(SIGSEGV),
      "^crash: a stack overflow .SIGSEGV.\n  where    thread a-reader\n[^\n]*.0x[^\n]*\n"
      "  next     look there for a function that calls itself without end");
  EXPECT_EXIT(
      {
        install_crash_line();
        ::_exit(calls_itself(&goes_on, &nothing));
      },
      testing::KilledBySignal(SIGSEGV), "^crash: a stack overflow .SIGSEGV.\n  where    the main thread\n");
}

TEST(CrashStack, LeavesAThreadsOwnStackForSignalsAsItIs) {
  const auto now = [] {
    stack_t stack{};
    ::sigaltstack(nullptr, &stack);
    return stack;
  };
  std::thread([&] {
    ASSERT_NE(now().ss_flags & SS_DISABLE, 0);
    {
      const CrashStack outer;
      const void* const memory = now().ss_sp;
      EXPECT_EQ(now().ss_flags & SS_DISABLE, 0);
      {
        const CrashStack inner;
        EXPECT_EQ(now().ss_sp, memory);
      }
      EXPECT_EQ(now().ss_sp, memory);
    }
    EXPECT_NE(now().ss_flags & SS_DISABLE, 0);
  }).join();
}

TEST(CrashDeathTest, ASignalFromOutsideIsNamedOnStderrAndInTheLogAndEndsAsBefore) {
  const std::string file = testing::TempDir() + "signal-log-" + std::to_string(::getpid());
  EXPECT_EXIT(
      {
        install_crash_line();
        set_crash_log(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600));
        doing_step(3);
        const Doing phase(Doing::Level::phase, "backward");
        ::raise(SIGQUIT);
        ::_exit(0);
      },
      testing::KilledBySignal(SIGQUIT), "^ended by a request to quit .SIGQUIT. in step 3, backward\n$");
  EXPECT_EQ(text_of(file), "{\"kind\":\"signal\",\"text\":\"a request to quit (SIGQUIT) in step 3, backward\"}\n");
  ::unlink(file.c_str());
}

TEST(CrashDeathTest, TheLimitOnCpuTimeLeavesASecondForTheLine) {
  EXPECT_EXIT(
      {
        struct rlimit limit {};
        limit.rlim_cur = limit.rlim_max = 1000;
        ::setrlimit(RLIMIT_CPU, &limit);
        install_crash_line();
        ::getrlimit(RLIMIT_CPU, &limit);
        ::_exit(limit.rlim_cur == 999 && limit.rlim_max == 1000 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(CrashDeathTest, AHandlerThatIsThereStays) {
  EXPECT_EXIT(
      {
        ::signal(SIGSEGV, [](int) { ::_exit(7); });
        install_crash_line();
        ::raise(SIGSEGV);
      },
      testing::ExitedWithCode(7), "^$");
}
#endif

}  // namespace
}  // namespace millrace
