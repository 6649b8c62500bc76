#include "millrace/train/watch/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <latch>

#include "millrace/base/doing.h"

namespace millrace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Watched {
  double now = 1000;
  int signal = 0;
  std::string saved = "snapshot runs/a/snapshots/step-00000040";
  std::vector<std::string> notices;
  std::vector<int> left;
  Watchdog dog{{.limit_s = 60,
                .report = [this](const std::string& text) { notices.push_back(text); },
                .saved = [this] { return saved; },
                .leave = [this](int code) { left.push_back(code); },
                .clock = [this] { return now; },
                .signal = [this] { return signal; }}};
  void pass(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      now += 1;
      dog.look();
    }
  }
};

TEST(Watchdog, AnOperationThatDoesNotComeBackIsNamedOnce) {
  std::latch begun(1), may_end(1);
  std::thread loop([&] {
    doing_step(41);
    const Doing phase(Doing::Level::phase, "backward");
    const Doing subject(Doing::Level::subject, "generator");
    doing_operation("aten::convolution_backward", "BFloat16 [2, 2, 14, 1026, 6] x [8, 2, 3, 3, 3]");
    begun.count_down();
    may_end.wait();
  });
  begun.wait();
  Watched run;
  run.pass(59);
  EXPECT_THAT(run.notices, IsEmpty());
  run.pass(200);
  EXPECT_THAT(run.notices,
              ElementsAre("the run has not moved for 60 s\n"
                          "  where    step 41, backward of generator, aten::convolution_backward BFloat16 [2, 2, 14, 1026, 6] x "
                          "[8, 2, 3, 3, 3]\n"
                          "  next     if this never ends, a library has a fault: stop the run and try --precision.dtype=fp32, "
                          "or ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 (or AVX2) before the command"));
  may_end.count_down();
  loop.join();
  run.pass(1);
  EXPECT_EQ(run.notices.back(), "the run moves again after 260 s");
  EXPECT_THAT(run.left, IsEmpty()) << "it ends nothing by itself";
  doing_step(0);
}

TEST(Watchdog, ASignalIsObeyedAfterTheLimit) {
  Watched run;
  run.signal = SIGTERM;
  run.pass(59);
  EXPECT_THAT(run.left, IsEmpty()) << "a step may still come to its end and be saved";
  run.pass(1);
  EXPECT_THAT(run.left, ElementsAre(143));
  EXPECT_EQ(run.notices.back(),
            "stopped by SIGTERM in a step that has not moved for 60 s: steps after the last snapshot are lost; the same command "
            "resumes from snapshot runs/a/snapshots/step-00000040");
  run.saved.clear();
  run.pass(1);
  EXPECT_THAT(run.notices.back(), HasSubstr("are lost; nothing was saved yet"));
}

// A save of gigabytes to a slow disk takes longer than the limit. If the watchdog ended the process then, the state that the
// signal asks to save would be lost.
TEST(Watchdog, TheSaveThatASignalAsksForIsNotCutShort) {
  const std::string save = kSaveTask + std::to_string(12);
  struct Case {
    const char *task, *phase;
    bool is_save;
  };
  const std::vector<Case> cases = {{save.c_str(), "snapshot", true},
                                   {save.c_str(), "summing over ranks", true},  // a rank that has no run folder waits for the
                                                                                // rank that saves
                                   {"", "snapshot", true},                      // the loop waits for the save of an earlier step
                                   {"", "summing over ranks", false},
                                   {"the validation after step 12", "forward", false}};
  for (const Case& each : cases) {
    const Doing task(Doing::Level::task, each.task);
    const Doing phase(Doing::Level::phase, each.phase);
    Watched run;
    run.signal = SIGTERM;
    run.pass(300);
    EXPECT_EQ(run.left.empty(), each.is_save) << each.task << ", " << each.phase;
    ASSERT_FALSE(run.notices.empty());
    EXPECT_EQ(run.notices.front().find("a second signal ends the run at once") != std::string::npos, each.is_save);
  }
}

TEST(Watchdog, StepsThatMoveAreLeftAloneHoweverManyThereAre) {
  Watched run;
  run.signal = SIGTERM;
  for (int i = 0; i < 100; ++i) {
    run.pass(50);
    doing_moved();
  }
  EXPECT_THAT(run.notices, IsEmpty());
  EXPECT_THAT(run.left, IsEmpty());
}

TEST(Watchdog, TheLimitFollowsWhatPhasesTake) {
  Watched run;
  for (int i = 0; i < 5; ++i) {
    run.pass(20);
    doing_moved();
    run.pass(1);
  }
  run.pass(900);
  EXPECT_THAT(run.notices, IsEmpty()) << "less than 50 times 20 s";
  run.pass(200);
  EXPECT_EQ(run.notices.size(), 1U);
}

TEST(Watchdog, TimeInWhichItDidNotLookDoesNotCount) {
  Watched run;
  run.pass(30);
  run.now += 3600;  // as after SIGSTOP or in a debugger
  run.pass(20);
  EXPECT_THAT(run.notices, IsEmpty());
}

TEST(Watchdog, DataAndDisksHaveRemediesOfTheirOwn) {
  for (const auto& [phase, remedy] :
       {std::pair{"waiting for data", "network that holds the data"}, std::pair{"snapshot", "disk that holds the run folder"}}) {
    const Doing waiting(Doing::Level::phase, phase);
    Watched run;
    run.pass(61);
    ASSERT_EQ(run.notices.size(), 1U);
    EXPECT_THAT(run.notices.front(), testing::AllOf(HasSubstr(phase), HasSubstr(remedy)));
  }
}

}  // namespace
}  // namespace millrace
