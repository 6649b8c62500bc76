// `millrace train --profile` as a user meets it: the table on the screen, the trace as TensorBoard's profiler reads it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "../cli/process.h"
#include "../interop/python.h"
#include "millrace/base/format.h"
#include "trace.h"

namespace millrace {
namespace {

using test::named;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> train(const std::vector<std::string>& more) {
  std::vector<std::string> words = {MILLRACE_PROGRAM, "train", "language_model", "--run", "run"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// A run of seven steps of which the fourth to the sixth are recorded, with recompute and two batches a step; made once.
struct Run {
  test::Scratch scratch;
  test::Result result;
  Run() {
    result = test::run(train({"--preset", "smoke", "--max_steps", "7", "--profile=3", "--memory.recompute=all",
                              "--optim.accumulate=2", "--device.kernels=ours"}),
                       {.folder = scratch.path(), .environment = {{"MILLRACE_DEVICE__THREADS", "1"}}});
  }
  [[nodiscard]] std::filesystem::path folder() const { return scratch.path() / "run" / "profile"; }
  [[nodiscard]] std::vector<std::string> rows() const {  // of the table on the screen
    std::vector<std::string> lines;
    std::istringstream text(result.out);
    bool inside = false;
    for (std::string line; std::getline(text, line);) {
      if (line.starts_with("trace  ")) inside = false;
      if (inside) lines.push_back(line);
      if (line.starts_with("operation ")) inside = true;
    }
    return lines;
  }
};

Run& recorded() {
  static Run run;
  return run;
}

TEST(ProfileOfARun, IsATableAndATrace) {
  const test::Result& result = recorded().result;
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("profile of steps 4 to 6: 3 steps of "));
  EXPECT_THAT(recorded().rows(), testing::SizeIs(10));
  EXPECT_THAT(result.out, HasSubstr("trace  run/profile/step-00000006.pt.trace.json ("));
  EXPECT_THAT(result.out, HasSubstr("tensorboard --logdir run "));
  EXPECT_THAT(result.err, Not(HasSubstr("gpuGetDeviceCount"))) << "Kineto's own messages are not the user's";
  EXPECT_THAT(result.out, Not(testing::AnyOf(HasSubstr("unaccounted"), HasSubstr("log_often"))))
      << "recording has its own account";
  const Json summary = Json::parse(test::read_text(recorded().folder().parent_path() / "summary.json"));
  EXPECT_GT(summary.at("accounts").at("profile").get<double>(), 0);
}

TEST(ProfileOfARun, HasOurKernelsBesideLibTorchsOperations) {
  const auto events = test::read_trace(recorded().folder() / "step-00000006.pt.trace.json");
  const auto ours = named(events, "millrace::");
  EXPECT_FALSE(ours.empty());
  for (const auto& event : ours) {
    EXPECT_EQ(event.category, "cpu_op");
    EXPECT_NE(event.shapes, "") << event.name;
  }
  EXPECT_FALSE(named(events, "torch::autograd::CppNode<millrace::").empty()) << "their backward";
  EXPECT_FALSE(named(events, "aten::").empty());
  const auto backward = named(events, "backward");
  EXPECT_EQ(backward.size(), 6U);
  const auto again = named(events, "recompute ");
  EXPECT_FALSE(again.empty());
  for (const auto& span : again) EXPECT_TRUE(test::any_holds(backward, span)) << span.name;
  for (const auto& event : named(events, "torch::autograd::CppNode<millrace::"))
    EXPECT_TRUE(test::any_holds(backward, event)) << event.name;
}

// The plugin's numbers, not ours: it builds a tree of the operations of its own.
TEST(ProfileOfARun, AgreesWithTensorBoardsProfiler) {
  if (const std::string reason = interop::missing("torch_tb_profiler.profiler.data"); !reason.empty()) GTEST_SKIP() << reason;
  const test::Result read = test::run({interop::python(), MILLRACE_READ_TRACE, recorded().folder().string()});
  ASSERT_EQ(read.exit_code, 0) << read.err;
  const std::size_t begin = read.out.find("json {");
  ASSERT_NE(begin, std::string::npos) << read.out;
  const Json theirs = Json::parse(read.out.substr(begin + 5));
  EXPECT_EQ(theirs["steps"], Json({"4", "5", "6"}));
  std::istringstream lines(test::read_text(recorded().scratch.path() / "run" / "log.jsonl"));
  Json ours;
  for (std::string line; std::getline(lines, line);) {
    if (Json json = Json::parse(line); json["kind"] == "profile") ours = std::move(json);
  }
  ASSERT_EQ(ours["longest"].size(), 10U);
  ASSERT_GE(theirs["operations"].size(), 10U);
  const std::vector<std::string> printed = recorded().rows();
  for (std::size_t i = 0; i < 10; ++i) {
    const Json& our = ours["longest"][i];
    const Json& their = theirs["operations"][i];
    EXPECT_EQ(our["name"], their["name"]) << "row " << i;
    EXPECT_EQ(our["calls"], their["calls"]) << our;
    // A time stamp has nanoseconds left beyond the precision of a double, and an operation some hundred calls.
    EXPECT_NEAR(our["total_ms"].get<double>(), their["total_us"].get<double>() * 1e-3, 1e-2) << our;
    EXPECT_NEAR(our["self_ms"].get<double>(), their["self_us"].get<double>() * 1e-3, 1e-2) << our;
    const Json shapes = Json::parse(their["shapes"].get<std::string>());
    EXPECT_EQ(our["shapes"].is_null() ? Json::array() : our["shapes"], shapes) << our["name"];
    EXPECT_THAT(printed[i], HasSubstr(" " + fixed(our["self_ms"].get<double>(), 2) + " ")) << "on the screen";
    EXPECT_THAT(printed[i], HasSubstr(" " + fixed(our["total_ms"].get<double>(), 2) + " "));
    EXPECT_THAT(printed[i], HasSubstr(" " + with_commas(our["calls"].get<std::int64_t>()) + " "));
  }
}

TEST(ProfileOfARun, IsNotMadeAgainByTheRunThatGoesOn) {
  const test::Scratch scratch;
  const test::Options here{.folder = scratch.path(), .environment = {{"MILLRACE_DEVICE__THREADS", "1"}}};
  const test::Result first = test::run(train({"--preset", "smoke", "--max_steps", "2", "--profile=1", "--profile.skip=0"}), here);
  EXPECT_THAT(first.out, HasSubstr("profile of step 1: 1 step of "));
  const test::Result second = test::run(train({"--max_steps", "6"}), here);
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_THAT(second.out, HasSubstr("done at step 6"));
  EXPECT_THAT(second.out + second.err, Not(HasSubstr("profile")));
  const test::Result third = test::run(train({"--max_steps", "8", "--profile", "--profile.skip=1"}), here);
  EXPECT_THAT(third.err, HasSubstr("the profile covers 1 instead of 10 steps, because the run ended"));
  EXPECT_THAT(third.out, HasSubstr("profile of step 8: 1 step of "));
  const test::Result fourth = test::run(train({"--max_steps", "9", "--profile"}), here);
  EXPECT_THAT(fourth.err, HasSubstr("no step was recorded: the run ended after 1 of the 3 steps that profile.skip leaves out"));
}

}  // namespace
}  // namespace millrace
