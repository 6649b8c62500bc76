// Steps that are recorded and replayed (train/step/step_graph.h) beside steps that are launched as they come: the same bits, and
// a reason where a step can't be recorded.
#include <gmock/gmock.h>

#include <algorithm>

#include "fixture.h"
#include "graph_toy.h"
#include "millrace/base/error.h"
#include "millrace/train/step/detail/recorded_inputs.h"

namespace millrace::standin {
namespace {

using testing::HasSubstr;

constexpr const char* kTimed = "ms a step as graphs";  // in the reason of a choice, whichever way a busy machine made it go

struct Ran {
  Json summary;
  std::string value, reason;  // of the plan's row; empty: there is none
  std::uint64_t replays = 0;
  [[nodiscard]] std::string state() const { return summary.at("state_sha256").get<std::string>(); }
};

Json with(Json config, const Json& more) {
  config.update(more);
  return config;
}

class Graph : public Standin {
 protected:
  Ran run(const Json& config, bool graph = true, const std::filesystem::path& folder = "") {
    reset_accounts();
    Json off = config.value("train.off", Json::array({"rehearsal"}));
    if (!graph) off.push_back("step_graph");
    Ran ran{.summary = toys::run(graph_toy(), folder, with(config, {{"train.off", off}})).summary};
    ran.replays = counted(Count::replays);
    for (const Json& row : ran.summary.at("choices")) {
      if (row.at("option") != "device.step_graph") continue;
      ran.value = row.at("value").get<std::string>();
      ran.reason = row.at("reason").get<std::string>();
    }
    return ran;
  }

  // With and without graphs: the same state. Returns the run with them.
  Ran same(const Json& config) {
    const Ran plain = run(config, false);
    EXPECT_EQ(plain.replays, 0U) << config;
    EXPECT_EQ(plain.value, "") << config;
    Ran graph = run(config);
    EXPECT_EQ(graph.state(), plain.state()) << config << " " << graph.reason;
    EXPECT_EQ(graph.summary.at("loss"), plain.summary.at("loss")) << config;
    EXPECT_EQ(graph.summary.at("metrics"), plain.summary.at("metrics")) << config;
    return graph;
  }

  void expect_replays(const Json& config) {
    const Ran ran = same(config);
    EXPECT_THAT(ran.reason, HasSubstr(kTimed)) << config;
    EXPECT_GT(ran.replays, 10U) << config;
  }

  void expect_reason(const std::string& planted, const std::string& reason) {
    const Ran ran = same({{"toy.planted", planted}});
    EXPECT_EQ(ran.value, "off") << planted;
    EXPECT_THAT(ran.reason, HasSubstr(reason)) << planted;
  }
};

// Eight epochs of seven steps, the last one of two rows; a validation every five steps.
TEST_F(Graph, StepsAreTheSameToTheBit) {
  const std::vector<Json> parts = {{},
                                   {{"optim.ema_decay", 0.9}},
                                   {{"toy.with", "dropout"}},
                                   {{"toy.with", "draws"}},
                                   {{"toy.with", "two"}},
                                   {{"toy.with", "norm"}},
                                   {{"toy.with", "memory"}},
                                   {{"toy.with", "weight"}},
                                   {{"toy.with", "parts"}},
                                   {{"optim.spike_zscore", 1.5}},
                                   {{"optim.clip_norm", 0.1}, {"optim.clip_value", 0.05}}};
  for (const char* dtype : {"fp32", "bf16", "fp16"}) {
    for (const Json& part : parts)
      expect_replays(with({{"precision.dtype", dtype}, {"train.validate_every", 5}}, part.is_null() ? Json::object() : part));
  }
}

TEST_F(Graph, AllAtOnceIsTheSameToTheBit) {
  expect_replays({{"precision.dtype", "bf16"},
                  {"toy.with", "dropout draws norm two memory weight"},
                  {"optim.ema_decay", 0.9},
                  {"optim.spike_zscore", 2.0},
                  {"optim.clip_norm", 0.5},
                  {"log.train_metrics", true},
                  {"train.validate_every", 3}});
}

TEST_F(Graph, PlainOptimisersAndSgdAreTheSameToTheBit) {
  expect_replays({{"optim.name", "sgd"}, {"optim.momentum", 0.9}});
  expect_replays({{"train.off", {"rehearsal", "fused_optimizer"}}});
}

TEST_F(Graph, AResumedRunEndsAsOneThatWasNotInterrupted) {
  const Json config = {{"toy.with", "dropout draws norm memory"}, {"optim.ema_decay", 0.9}, {"optim.schedule", "constant"}};
  const std::string whole = run(config, false).state();
  for (const int stop : {3, 6, 20, 33}) {
    const toys::TemporaryFolder folder;
    (void)run(with(config, {{"train.max_steps", stop}}), true, folder.path());
    const Ran resumed = run(config, true, folder.path());
    EXPECT_EQ(resumed.state(), whole) << stop;
    EXPECT_THAT(resumed.reason, HasSubstr(kTimed)) << stop;
  }
}

// Eight steps in a row that are not finite: bf16 is given up, and the steps in fp32 are recorded anew.
TEST_F(Graph, StepsThatAreSkippedAndAChangeOfFormatAreTheSameToTheBit) {
  for (const char* dtype : {"fp32", "bf16", "fp16"})
    expect_replays({{"toy.planted", "nan"}, {"toy.with", "norm memory"}, {"optim.ema_decay", 0.9}, {"precision.dtype", dtype}});
}

TEST_F(Graph, ALossThatReadsTheStepIsNotRecorded) {
  expect_reason("step", "the loss depends on StepContext::step");
  expect_reason("update", "the loss depends on StepContext::step");
}

TEST_F(Graph, ALossThatReadsTheEpochIsRecordedAnew) {
  const Ran few = same({{"toy.planted", "epoch"}});
  EXPECT_THAT(few.reason, HasSubstr("an epoch has few steps"));
  const Ran many = same({{"toy.planted", "epoch"}, {"toy.rows", 320}, {"train.epochs", 3}});
  EXPECT_THAT(many.reason, HasSubstr(kTimed));
}

TEST_F(Graph, WhatTheHostChangesIsFound) {
  expect_reason("counter", "the loss of a replayed step was");
  expect_reason("gradient", "the gradient's norm of a replayed step was");
  expect_reason("host draws", "");
  expect_reason("on host", "the batch's field \"factor\" is not on the device");
}

TEST_F(Graph, WhatCannotBeRecordedIsToldWhy) {
  expect_reason("read", "can't be recorded");
  expect_reason("pageable", "can't be recorded");
}

TEST_F(Graph, ShapesThatChangeAreLaunchedAsTheyCome) { expect_reason("shapes", "batches have more than 3 shapes"); }

TEST_F(Graph, AnObjectiveThatComesLaterIsWaitedFor) {
  const Json config = {{"toy.planted", "absent"}, {"toy.with", "two"}};
  EXPECT_EQ(same(with(config, {{"train.epochs", 2}})).reason, "an objective has no loss");
  EXPECT_THAT(same(config).reason, HasSubstr(kTimed));
}

Batch of_groups(const std::vector<std::vector<std::int64_t>>& positions) {
  std::vector<Group> groups;
  for (const auto& rows : positions)
    groups.push_back({.name = std::to_string(groups.size()), .fields = {}, .positions = rows, .indices = {}});
  return Batch(std::move(groups));
}

TEST_F(Graph, RowsThatCouldBeThoseOfTwoGroupsAreNotGuessed) {
  RecordedInputs inputs(kGpu, 3);
  inputs.begin(of_groups({{0, 1}, {0, 1}}));
  EXPECT_NE(inputs.place_of({.seed = 3, .epoch = 0, .site = 0, .rows = {{0, 2}}}, 8), nullptr);
  EXPECT_TRUE(inputs.write(of_groups({{4, 5}, {4, 5}}), 1));
  EXPECT_FALSE(inputs.is_unsure());
  EXPECT_FALSE(inputs.write(of_groups({{4, 5}, {6, 7}}), 2));
  EXPECT_TRUE(inputs.is_unsure());
}

TEST_F(Graph, ALossMayTakeGroupsByTheirEarliestRow) {
  RecordedInputs inputs(kGpu, 3);
  inputs.begin(of_groups({{5, 6}, {0, 1}}));
  EXPECT_NE(inputs.place_of({.seed = 3, .epoch = 0, .site = 0, .rows = {{0, 2}, {5, 2}}}, 8), nullptr);
  EXPECT_TRUE(inputs.write(of_groups({{7, 8}, {3, 4}}), 1));
  EXPECT_THROW((void)inputs.place_of({.seed = 3, .epoch = 0, .site = 1, .rows = {{1, 1}, {0, 1}}}, 8), RecipeError);
}

TEST_F(Graph, StepsOfSeveralMicroBatchesAreTheSameToTheBit) {
  expect_replays({{"optim.accumulate", 2}, {"toy.with", "dropout norm memory"}});
  expect_replays({{"memory.micro_batches", 2}, {"toy.with", "dropout memory"}});
}

TEST_F(Graph, AProfileOfStepsThatAreLaunchedTwiceIsWarnedOf) {
  const auto said = [&](std::int64_t skip) {
    testing::internal::CaptureStderr();
    (void)run({{"train.max_steps", 2}, {"profile.steps", 1}, {"profile.skip", skip}});
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said(9), HasSubstr("--profile.skip=10 leaves them out"));
  EXPECT_THAT(said(10), testing::Not(HasSubstr("leaves them out")));
}

TEST_F(Graph, OffloadingIsToldFromTheStart) { EXPECT_EQ(same({{"memory.offload", "1 KB"}}).reason, "activations are offloaded"); }

}  // namespace
}  // namespace millrace::standin
