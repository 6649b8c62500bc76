// A profile of a toy's steps: it changes no step, its trace is complete, and its table agrees with the trace.
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <map>
#include <set>

#include "../train/toys.h"
#include "millrace/base/error.h"
#include "millrace/system/signals.h"
#include "millrace/train/run/run.h"
#include "trace.h"

namespace millrace {
namespace {

using test::any_holds;
using test::named;
using test::TraceEvent;
using testing::IsEmpty;
using testing::SizeIs;

const Json kConfig = {{"train.epochs", 0},
                      {"train.max_steps", 9},
                      {"train.validate_every", 2},
                      {"snapshot.every_steps", 3},
                      {"snapshot.every_epochs", 0},
                      {"snapshot.keep_last", 2},
                      {"log.every", 2},
                      {"log.train_metrics", true},
                      {"log.tensorboard", false},
                      {"log.images", false},
                      {"optim.accumulate", 2}};

Json with(const Json& more) {
  Json config = kConfig;
  config.update(more);
  return config;
}

const Json kFive = {{"profile.steps", 5}, {"profile.skip", 2}};  // steps 3 to 7

std::vector<std::filesystem::path> traces_in(const std::filesystem::path& run) {
  std::vector<std::filesystem::path> files;
  if (!std::filesystem::exists(run / "profile")) return files;
  for (const auto& file : std::filesystem::directory_iterator(run / "profile")) files.push_back(file.path());
  return files;
}

// Of every log line what a step computed.
std::vector<Json> computed(const std::filesystem::path& run) {
  std::vector<Json> lines;
  for (const Json& line : toys::log_of(run, "step")) {
    Json kept;
    for (const auto& [key, value] : line.items()) {
      if (key == "step" || key.starts_with("loss") || key.starts_with("train/") || key.find("grad_norm") != std::string::npos)
        kept[key] = value;
    }
    lines.push_back(kept);
  }
  return lines;
}

class Profile : public testing::Test {
 protected:
  ~Profile() override {
    toys::at_point = nullptr;
    reset_pending_signal_for_test();
  }
  toys::TemporaryFolder folder_;
};

TEST_F(Profile, ChangesNoBitOfTheSteps) {
  const toys::TemporaryFolder plain;
  const RunOutcome off = toys::run(toys::grouped_regression(), plain.path(), kConfig);
  const RunOutcome on = toys::run(toys::grouped_regression(), folder_.path(), with(kFive));
  EXPECT_EQ(on.summary["state_sha256"], off.summary["state_sha256"]);
  EXPECT_EQ(on.summary["metrics"], off.summary["metrics"]);
  const std::vector<Json> losses = computed(plain.path());
  EXPECT_GE(losses.size(), 4U);
  EXPECT_TRUE(losses.front().contains("loss"));
  EXPECT_EQ(computed(folder_.path()), losses);
  EXPECT_THAT(traces_in(plain.path()), IsEmpty());
  EXPECT_THAT(toys::log_of(plain.path(), "profile"), IsEmpty());
}

TEST_F(Profile, NobodyListensButInItsSteps) {
  std::map<int, std::set<bool>> heard;
  int step = 0;
  toys::at_point = [&](const char* point) {
    if (std::string(point) == "loss") heard[step++ / 2].insert(at::hasCallbacks());
  };
  (void)toys::run(toys::grouped_regression(), "", with({{"train.validate_every", 0}, {"profile.steps", 2}, {"profile.skip", 1}}));
  ASSERT_GE(heard.size(), 5U);
  const std::set<bool> no = {false}, yes = {true};
  EXPECT_EQ(heard[0], no);
  EXPECT_EQ(heard[1], yes);
  EXPECT_EQ(heard[2], yes);
  EXPECT_EQ(heard[3], no);
  EXPECT_EQ(heard[4], no);
}

TEST_F(Profile, TheSpansOfTheLoopNestAroundTheOperations) {
  (void)toys::run(toys::grouped_regression(), folder_.path(), with(kFive));
  const std::filesystem::path file = folder_.path() / "profile" / "step-00000007.pt.trace.json";
  ASSERT_TRUE(std::filesystem::exists(file));
  const std::vector<TraceEvent> events = test::read_trace(file);
  const std::vector<TraceEvent> steps = named(events, "ProfilerStep#");
  ASSERT_EQ(steps.size(), 5U);
  EXPECT_EQ(steps.front().name, "ProfilerStep#3");
  EXPECT_EQ(steps.back().name, "ProfilerStep#7");
  // An epoch has five batches: its last step has one alone.
  const std::map<std::string, std::size_t> spans = {{"data_wait", 9}, {"copy", 9},      {"prepare", 9}, {"forward", 9},
                                                    {"backward", 9},  {"optimizer", 5}, {"metrics", 14}};
  for (const auto& [name, count] : spans) {
    const std::vector<TraceEvent> found = named(events, name);
    EXPECT_EQ(found.size(), count) << name;
    for (const TraceEvent& span : found) {
      EXPECT_EQ(span.category, "user_annotation");
      EXPECT_TRUE(any_holds(steps, span)) << name;
    }
  }
  const std::vector<TraceEvent> logs = named(events, "log");  // two lines, and the end of the epoch between two steps
  EXPECT_EQ(logs.size(), 3U);
  EXPECT_EQ(std::ranges::count_if(logs, [&](const TraceEvent& span) { return any_holds(steps, span); }), 2);
  for (const char* name : {"validate", "snapshot"}) {  // between the steps
    EXPECT_FALSE(named(events, name).empty()) << name;
    for (const TraceEvent& span : named(events, name)) EXPECT_FALSE(any_holds(steps, span)) << name;
  }
  const std::vector<TraceEvent> backward = named(events, "backward");
  int nodes = 0;
  for (const TraceEvent& event : events) {
    if (event.category != "cpu_op" || event.name.find("Backward0") == std::string::npos) continue;
    ++nodes;
    EXPECT_TRUE(any_holds(backward, event)) << event.name;
  }
  EXPECT_GT(nodes, 50);
  for (const TraceEvent& linear : named(events, "aten::addmm")) {
    EXPECT_NE(linear.shapes, "");
    EXPECT_TRUE(any_holds(named(events, "forward"), linear)) << "what validations compute is not recorded";
  }
}

TEST_F(Profile, TheTableIsWhatTheTraceSays) {
  (void)toys::run(toys::grouped_regression(), folder_.path(), with(kFive));
  const std::vector<Json> records = toys::log_of(folder_.path(), "profile");
  ASSERT_THAT(records, SizeIs(1));
  const Json& record = records.front();
  EXPECT_EQ(record["first"], 3);
  EXPECT_EQ(record["last"], 7);
  EXPECT_EQ(record["steps"], 5);
  const std::vector<TraceEvent> events = test::read_trace(folder_.path() / record["trace"].get<std::string>());
  std::vector<TraceEvent> operations;
  std::ranges::copy_if(events, std::back_inserter(operations),
                       [](const TraceEvent& event) { return event.category == "cpu_op"; });
  // The innermost other operation around each, found the long way.
  const std::size_t none = operations.size();
  std::vector<std::size_t> around(operations.size(), none);
  std::vector<int> inside(operations.size(), 0);
  for (std::size_t i = 0; i < operations.size(); ++i) {
    for (std::size_t j = 0; j < operations.size(); ++j) {
      const TraceEvent& other = operations[j];
      const bool is_around = j != i && other.thread == operations[i].thread && other.begin <= operations[i].begin &&
                             operations[i].begin < other.begin + other.took && (other.took > operations[i].took || j < i);
      if (is_around && (around[i] == none || other.begin >= operations[around[i]].begin)) around[i] = j;
    }
    if (around[i] != none) ++inside[around[i]];
  }
  const std::function<std::string(std::size_t)> row_of = [&](std::size_t i) {
    const std::size_t outer = around[i];
    const bool is_outer = outer != none && inside[outer] == 1 && operations[outer].name == operations[i].name;
    return is_outer ? row_of(outer) : operations[i].name + operations[i].shapes;
  };
  std::map<std::string, double> own;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    own[row_of(i)] += operations[i].took;
    if (around[i] != none) own[row_of(around[i])] -= operations[i].took;
  }
  std::vector<double> sorted;
  for (const auto& [key, us] : own) sorted.push_back(us * 1e-3);
  std::ranges::sort(sorted, std::greater());
  ASSERT_THAT(record["longest"], SizeIs(10));
  for (std::size_t i = 0; i < 10; ++i) {
    const Json& row = record["longest"][i];
    const std::string shapes = row["shapes"].is_null() ? "" : row["shapes"].dump();
    EXPECT_NEAR(row["self_ms"].get<double>(), own.at(row["name"].get<std::string>() + shapes) * 1e-3, 1e-6) << row;
    EXPECT_NEAR(row["self_ms"].get<double>(), sorted[i], 1e-6) << "none is longer than the one before";
  }
}

TEST_F(Profile, OfARunThatIsStoppedIsWhatThereWas) {
  install_signal_handlers();
  int seen = 0;
  toys::at_point = [&](const char* point) {
    if (std::string(point) == "loss" && ++seen == 12) std::raise(SIGTERM);
  };
  const RunOutcome stopped =
      toys::run(toys::grouped_regression(), folder_.path(), with({{"train.validate_every", 0}, {"profile.steps", 50}}));
  EXPECT_EQ(stopped.summary["exit_reason"], "signal");
  const std::vector<Json> records = toys::log_of(folder_.path(), "profile");
  ASSERT_THAT(records, SizeIs(1));
  EXPECT_EQ(records.front()["first"], 4);
  EXPECT_EQ(records.front()["last"], 6);
  EXPECT_THAT(traces_in(folder_.path()), SizeIs(1));
}

TEST_F(Profile, OfARunThatFailsIsWhatThereWas) {
  int seen = 0;
  toys::at_point = [&](const char* point) {
    if (std::string(point) == "loss" && ++seen == 12) throw std::runtime_error("planted");
  };
  EXPECT_ANY_THROW(
      (void)toys::run(toys::grouped_regression(), folder_.path(), with({{"train.validate_every", 0}, {"profile.steps", 50}})));
  EXPECT_THAT(toys::log_of(folder_.path(), "profile"), SizeIs(1));
  EXPECT_THAT(traces_in(folder_.path()), SizeIs(1));
  EXPECT_FALSE(at::hasCallbacks());
}

TEST_F(Profile, GoesWithARunThatIsReplaced) {
  (void)toys::run(toys::grouped_regression(), folder_.path(), with(kFive));
  EXPECT_THAT(traces_in(folder_.path()), SizeIs(1));
  (void)toys::run(toys::grouped_regression(), folder_.path(), kConfig, /*fresh=*/true);
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "profile"));
}

}  // namespace
}  // namespace millrace
