#include "millrace/device/convolution_trial.h"

#include <ATen/ops/convolution.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "millrace/device/convolution_guard.h"

namespace millrace::device {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;

const ConvolutionShape kShape{false, {2, 3, 8, 8}, {4, 3, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, 1};

auto is(Pass pass, const char* what) {
  return AllOf(Field(&FoundFault::pass, pass), Field(&FoundFault::what, HasSubstr(what)), Field(&FoundFault::shape, kShape));
}

// Replaces millrace-convolutions by a program that reads its job and behaves as `script` says.
class Stand {
 public:
  explicit Stand(const std::string& script) : path_(std::filesystem::current_path() / "stands-in.sh") {
    std::ofstream(path_) << "#!/bin/sh\ncat > /dev/null\n" << script << "\n";
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all);
    ::setenv("MILLRACE_CONVOLUTIONS_CHILD", path_.c_str(), 1);
  }
  ~Stand() {
    ::unsetenv("MILLRACE_CONVOLUTIONS_CHILD");
    std::filesystem::remove(path_);
  }
  Stand(const Stand&) = delete;
  Stand& operator=(const Stand&) = delete;

 private:
  std::filesystem::path path_;
};

TEST(ConvolutionTrial, AnOrdinaryShapeIsRight) {
  const ConvolutionTrial trial = try_convolutions(std::vector{kShape}, 1);
  EXPECT_THAT(trial.faults, testing::IsEmpty());
  EXPECT_EQ(trial.tried, 1);
  EXPECT_EQ(trial.untried, "");
}

// Runs millrace-convolutions with a preloaded library that computes weight gradients with a mistake.
class Mistake {
 public:
  explicit Mistake(const char* mistake) {
    ::setenv("LD_PRELOAD", MILLRACE_FAULTY_CONVOLUTIONS, 1);
    ::setenv("MILLRACE_MISTAKE", mistake, 1);
  }
  ~Mistake() {
    ::unsetenv("LD_PRELOAD");
    ::unsetenv("MILLRACE_MISTAKE");
  }
  Mistake(const Mistake&) = delete;
  Mistake& operator=(const Mistake&) = delete;
};

TEST(ConvolutionTrial, WhatNeedNotCrashIsSeen) {
  const ConvolutionShape shape{false, {2, 16, 8, 8}, {16, 16, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, 1};
  for (const auto& [mistake, what] :
       std::vector<std::pair<const char*, const char*>>{{"beyond", "wrote 64 bytes beyond its memory"},
                                                        {"before", "wrote 64 bytes before its memory"},
                                                        {"scratch", "wrote 64 bytes beyond its memory"},
                                                        {"element", "an element "},
                                                        {"uninitialised", "not finite"}}) {
    const Mistake made(mistake);
    const ConvolutionTrial trial = try_convolutions(std::vector{shape, kShape}, 1);
    EXPECT_THAT(trial.faults,
                testing::Contains(AllOf(Field(&FoundFault::shape, shape), Field(&FoundFault::pass, Pass::weight_gradient),
                                        Field(&FoundFault::what, HasSubstr(what)))))
        << mistake;
    EXPECT_THAT(trial.faults, testing::SizeIs(2)) << mistake << ": the weight gradients of both shapes, and no other pass";
    EXPECT_EQ(trial.tried, 2) << mistake;
    EXPECT_EQ(trial.untried, "") << mistake;
  }
  const Mistake made("no mistake");
  EXPECT_THAT(try_convolutions(std::vector{shape, kShape}, 1).faults, testing::IsEmpty());
}

TEST(ConvolutionTrial, WhatIsWrongIsAFaultOnceForBothLayouts) {
  const Stand stand(
      "for unit in 0 1 2 3 4 5; do echo begin $unit 5000; case $unit in 2|5) echo wrong $unit not finite;; "
      "*) echo right $unit;; esac; done");
  const ConvolutionTrial trial = try_convolutions(std::vector{kShape}, 1);
  EXPECT_THAT(trial.faults, ElementsAre(is(Pass::weight_gradient, "not finite")));
  EXPECT_EQ(trial.tried, 1);
}

TEST(ConvolutionTrial, WhenItMayNotGoOnTheRestStaysUntried) {
  const Stand stand("echo begin 0 5000; echo wrong 0 not finite; echo begin 1 5000; exec sleep 1000");
  std::size_t most = 0;
  const ConvolutionTrial trial = try_convolutions(std::vector{kShape}, 1, 60'000, [&](std::size_t done, std::size_t all) {
    EXPECT_EQ(all, 6U);
    most = std::max(most, done);
    return done == 0;
  });
  EXPECT_EQ(most, 1U);
  EXPECT_THAT(trial.faults, ElementsAre(is(Pass::forward, "not finite")));
  EXPECT_EQ(trial.tried, 0);
  EXPECT_EQ(trial.untried, "the time for trials was over");
}

// Each pass hangs in its first layout. The program is then restarted for the remaining passes.
TEST(ConvolutionTrial, WhatNeverEndsIsEndedByItsTimeOnACore) {
  const Stand stand("echo begin 0 100\nwhile :; do :; done");
  const ConvolutionTrial trial = try_convolutions(std::vector{kShape}, 1);
  EXPECT_THAT(trial.faults, ElementsAre(is(Pass::forward, "never ended"), is(Pass::input_gradient, "never ended"),
                                        is(Pass::weight_gradient, "never ended")));
  EXPECT_EQ(trial.untried, "");
}

TEST(ConvolutionTrial, TheTimeForAReferenceIsThatOfAllThreads) {
  {
    // The program takes 0.3 s on a core before it begins. That is more than the limit for one thread, and far less than the limit
    // for a thousand.
    const Stand stand(
        "while :; do\n"
        "  i=0; while [ $i -lt 1000 ]; do i=$((i + 1)); done\n"
        "  times > spent; read user system < spent; case $user in 0m0.[012]*) ;; *) break;; esac\n"
        "done\n"
        "for unit in 0 1 2 3 4 5; do echo begin $unit 60000; echo right $unit; done");
    const ConvolutionTrial trial = try_convolutions(std::vector{kShape}, 1000, 100);
    std::filesystem::remove("spent");
    EXPECT_EQ(trial.untried, "");
    EXPECT_EQ(trial.tried, 1);
  }
  const Stand stand("while :; do :; done");
  EXPECT_EQ(try_convolutions(std::vector{kShape}, 1, 100).untried, "its fp32 reference took too long");
}

TEST(ConvolutionTrial, AShapeThatMemoryDoesNotHoldStaysUntried) {
  const std::int64_t side = std::int64_t{1} << 20;
  const ConvolutionShape huge{false, {1, 1, side, side}, {1, 1, 1, 1}, {1, 1}, {0, 0}, {1, 1}, {0, 0}, 1};
  const ConvolutionTrial trial = try_convolutions(std::vector{huge, kShape}, 1);
  EXPECT_THAT(trial.faults, testing::IsEmpty());
  EXPECT_EQ(trial.tried, 1);
  EXPECT_THAT(trial.untried, HasSubstr("does not fit: the process holds"));
}

TEST(ConvolutionTrial, ACrashIsAFaultOfItsPassAndTheRestIsTriedAfterIt) {
  const Stand stand(
      "if mkdir once; then echo begin 0 5000; echo right 0; echo begin 1 5000; kill -SEGV $$; fi\n"
      "for unit in 0 1 2; do echo begin $unit 5000; echo right $unit; done");
  const ConvolutionTrial trial = try_convolutions(std::vector{kShape}, 1);
  std::filesystem::remove("once");
  EXPECT_THAT(trial.faults, ElementsAre(is(Pass::input_gradient, "crashed, ended by signal 11")));
  EXPECT_EQ(trial.tried, 1);
  EXPECT_EQ(trial.untried, "") << "the weight gradient, and of the other layout all but the input's gradient";
}

TEST(ConvolutionTrial, WhatCanNotBeTriedIsNoFault) {
  for (const auto& [script, why] : std::vector<std::pair<std::string, std::string>>{
           {"exit 3", "exit status 3"},
           {"kill -KILL $$", "signal 9"},
           {"echo what is this", "said \"what is this\""},
           {"echo begin 4 5000", "said \"begin 4 5000\""},
           {"for unit in 0 1 2 3 4 5; do echo untried $unit out of memory; done", "out of memory"}}) {
    const Stand stand(script);
    const ConvolutionTrial trial = try_convolutions(std::vector{kShape}, 1);
    EXPECT_THAT(trial.faults, testing::IsEmpty()) << script;
    EXPECT_EQ(trial.tried, 0) << script;
    EXPECT_THAT(trial.untried, HasSubstr(why));
  }
  ::setenv("MILLRACE_CONVOLUTIONS_CHILD", "/nowhere", 1);
  EXPECT_THAT(try_convolutions(std::vector{kShape}, 1).untried, HasSubstr("No such file"));
  ::unsetenv("MILLRACE_CONVOLUTIONS_CHILD");
}

TEST(ConvolutionTrial, AStepsConvolutionsAreSeenOnceEach) {
  const at::Tensor input = at::ones({2, 3, 8, 8}), weight = at::ones({4, 3, 3, 3});
  const auto call = [&] { (void)at::convolution(input, weight, {}, {1}, {1}, {1}, false, {0}, 1); };
  const std::vector<ConvolutionShape> seen = convolutions_of([&] {
    call();
    call();
  });
  EXPECT_THAT(seen, ElementsAre(kShape)) << "one value for all directions is that value for each";
  EXPECT_EQ(to_text(seen.front()), "[2, 3, 8, 8] x [4, 3, 3, 3], padding [1, 1]");
  EXPECT_EQ(convolution_shape_in(to_json(kShape)), kShape);
}

TEST(Guard, WhatATrialFoundIsComputedInFp32WithAnyNumberOfSamples) {
  const ConvolutionGuardForTest guard(below());
  guard_also({{kShape, Pass::forward, "wrong"}});
  const auto call = [](std::int64_t samples, at::ScalarType type, std::int64_t width) {
    return at::convolution(at::ones({samples, 3, 8, width}, type), at::ones({4, 3, 3, 3}, type), {}, {1}, {1}, {1}, false, {0},
                           1);
  };
  EXPECT_EQ(call(2, at::kBFloat16, 8).scalar_type(), at::kBFloat16);
  EXPECT_EQ(guard.times("found here"), 1);
  (void)call(1, at::kBFloat16, 8);
  EXPECT_EQ(guard.times("found here"), 2);
  (void)call(2, at::kFloat, 8);
  (void)call(2, at::kBFloat16, 9);
  EXPECT_EQ(guard.times("found here"), 2) << "neither fp32 nor another shape";
}

}  // namespace
}  // namespace millrace::device
