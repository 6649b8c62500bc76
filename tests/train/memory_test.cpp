// Memory: a step that runs out of it is undone and retried with less; searches that try settings.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/base/error.h"
#include "millrace/device/errors.h"
#include "millrace/device/tensor_memory.h"
#include "millrace/measure/memory_search.h"
#include "millrace/precision/precision.h"
#include "millrace/snapshot/snapshot.h"
#include "millrace/train/assembly/memory_choice.h"
#include "millrace/train/step/micro_batches.h"
#include "toys.h"

namespace millrace {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Large enough that a batch's activations outweigh everything else.
Json wide(const Json& more) {
  Json config = {{"toy.rows", 1024},
                 {"toy.dropout", 0.2},
                 {"data.batch_size", 256},
                 {"train.epochs", 2},
                 {"optim.accumulate", 2},
                 {"train.validate_every", 100},
                 {"memory.recompute", Json::array({"none"})}};
  if (!more.is_null()) config.update(more);
  return config;
}

std::uint64_t step_peak(const RunOutcome& run) { return run.summary.at("memory").at("step_peak_bytes").get<std::uint64_t>(); }

// Between what a run needs with whole batches and with half ones.
std::string limit_between(const RunOutcome& whole, const RunOutcome& halves) {
  EXPECT_LT(step_peak(halves), step_peak(whole));
  return std::to_string((step_peak(whole) + step_peak(halves)) / 2);
}

TEST(Memory, AStepThatDoesNotFitIsSplitAndEqualsARunStartedAtThatSplit) {
  const RunOutcome whole = toys::run(toys::grouped_regression(), "", wide({}));
  const RunOutcome halves = toys::run(toys::grouped_regression(), "", wide({{"memory.micro_batches", 2}}));
  EXPECT_NE(whole.summary["state_sha256"], halves.summary["state_sha256"]) << "the comparison must be able to fail";
  const std::string limit = limit_between(whole, halves);
  const toys::TemporaryFolder folder;
  testing::internal::CaptureStderr();
  const RunOutcome recovered = toys::run(toys::grouped_regression(), folder.path(), wide({{"memory.limit", limit}}));
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      testing::ContainsRegex("out of memory in step 1 \\(a tensor of .* does not fit: tensors hold .*\\): each batch is cut "
                             "into 2 micro-batches from now on; the global batch does not change"));
  EXPECT_EQ(recovered.summary["memory"]["micro_batches"], 2);
  EXPECT_EQ(recovered.summary["samples"], whole.summary["samples"]);
  EXPECT_EQ(recovered.summary["steps"], whole.summary["steps"]);
  EXPECT_EQ(recovered.summary["state_sha256"], halves.summary["state_sha256"]);
  const auto log = Fs::real().read_file(folder.path() / "log.jsonl");
  EXPECT_THAT(log, HasSubstr("\"kind\":\"memory\""));
}

TEST(Memory, AnyStepIsRecoveredWhereverItFails) {
  const RunOutcome whole = toys::run(toys::grouped_regression(), "", wide({}));
  const RunOutcome halves = toys::run(toys::grouped_regression(), "", wide({{"memory.micro_batches", 2}}));
  const auto limit = std::stoull(limit_between(whole, halves));
  // Forward passes: two a step. The fourth is the second micro-batch of the second step.
  for (const int failing : {1, 2, 3, 4}) {
    int seen = 0;
    toys::at_point = [&](const char* point) {
      if (std::string_view(point) == "loss" && ++seen == failing) device::limit_tensor_memory(limit);
    };
    const RunOutcome recovered = toys::run(toys::grouped_regression(), "", wide({}));
    toys::at_point = nullptr;
    EXPECT_EQ(recovered.summary["memory"]["micro_batches"], 2) << failing;
    // The same steps whole, the rest in halves, by way of a snapshot.
    const toys::TemporaryFolder folder;
    const int steps = (failing - 1) / 2;
    if (steps > 0) (void)toys::run(toys::grouped_regression(), folder.path(), wide({{"train.max_steps", steps}}));
    const RunOutcome expected = toys::run(toys::grouped_regression(), folder.path(), wide({{"memory.micro_batches", 2}}));
    EXPECT_EQ(recovered.summary["state_sha256"], expected.summary["state_sha256"]) << "failed in forward pass " << failing;
  }
}

TEST(Memory, AResumedRunGoesOnInParts) {
  const toys::TemporaryFolder folder;
  (void)toys::run(toys::grouped_regression(), folder.path(), wide({{"memory.micro_batches", 4}, {"train.max_steps", 2}}));
  const RunOutcome resumed = toys::run(toys::grouped_regression(), folder.path(), wide({}));
  EXPECT_EQ(resumed.summary["memory"]["micro_batches"], 4);
  const RunOutcome straight = toys::run(toys::grouped_regression(), "", wide({{"memory.micro_batches", 4}}));
  EXPECT_EQ(resumed.summary["state_sha256"], straight.summary["state_sha256"]);
}

TEST(Memory, PartsOfABatchEqualSmallerBatchesAccumulated) {
  const Json few = {{"train.epochs", 0}, {"train.max_steps", 3}, {"data.shuffle", false}, {"toy.rows", 64}};
  Json parts = few;
  parts.update({{"data.batch_size", 16}, {"memory.micro_batches", 4}});
  Json batches = few;
  batches.update({{"data.batch_size", 4}, {"optim.accumulate", 4}});
  const RunOutcome one = toys::run(toys::grouped_regression(), "", parts);
  const RunOutcome four = toys::run(toys::grouped_regression(), "", batches);
  EXPECT_EQ(one.summary["metrics"]["val_loss"]["last"], four.summary["metrics"]["val_loss"]["last"]);
  EXPECT_EQ(one.summary["loss"], four.summary["loss"]);
}

TEST(Memory, OneSampleThatDoesNotFitEndsTheRunWithATable) {
  try {
    (void)toys::run(toys::grouped_regression(), "", wide({{"data.batch_size", 1}, {"memory.limit", "1"}}));
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_TRUE(device::is_out_of_memory(error)) << "not even the weights fit: " << error.what();
  }
  toys::at_point = [](const char* point) {
    if (std::string_view(point) == "loss") throw c10::OutOfMemoryError({"", "", 0}, "a tensor of 8 GB does not fit");
  };
  try {
    (void)toys::run(toys::grouped_regression(), "", wide({{"data.batch_size", 2}}));
    FAIL();
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("out of memory with one sample at a time: a tensor of"));
    EXPECT_THAT(error.what(), testing::ContainsRegex("step 1; tensors hold .* between steps: optimizer .*, parameters .*\\."));
  }
  toys::at_point = nullptr;
  EXPECT_EQ(device::tensor_memory_limit(), 0U) << "a session puts the limit back";
}

std::vector<std::string> rises_told(const std::filesystem::path& run) {
  std::vector<std::string> notices;
  for (const Json& line : toys::log_of(run, "warning")) {
    if (auto text = line["text"].get<std::string>(); text.starts_with("tensors hold more")) notices.push_back(std::move(text));
  }
  return notices;
}

TEST(Memory, ThatRisesFromLogLineToLogLineIsToldOnce) {
  const Json config = {{"train.epochs", 6}, {"log.every", 1}, {"log.tensorboard", false}};
  const toys::TemporaryFolder clean, leaking;
  (void)toys::run(toys::grouped_regression(), clean.path(), config);
  EXPECT_THAT(rises_told(clean.path()), testing::IsEmpty());
  std::vector<at::Tensor> kept;
  toys::at_point = [&](const char* point) {
    if (std::string_view(point) == "loss") kept.push_back(at::ones({1'000'000}));
  };
  (void)toys::run(toys::grouped_regression(), leaking.path(), config);
  toys::at_point = nullptr;
  EXPECT_THAT(rises_told(leaking.path()), ElementsAre(HasSubstr("something keeps tensors from step to step")));
}

TEST(Memory, HasLinesOfItsOwnWhenAsked) {
  const toys::TemporaryFolder folder;
  (void)toys::run(toys::grouped_regression(), folder.path(),
                  {{"train.epochs", 0}, {"train.max_steps", 7}, {"log.every", 50}, {"log.gpu_every", 3}});
  std::vector<std::int64_t> steps;
  for (const Json& line : toys::log_of(folder.path(), "memory_use")) {
    steps.push_back(line["step"]);
    EXPECT_GT(line["rss"].get<double>(), 1e6);
  }
  EXPECT_THAT(steps, ElementsAre(3, 6));
}

TEST(Memory, WithRecoveryOffARunEnds) {
  toys::at_point = [](const char* point) {
    if (std::string_view(point) == "loss") throw c10::OutOfMemoryError({"", "", 0}, "a tensor of 8 GB does not fit");
  };
  EXPECT_THROW((void)toys::run(toys::grouped_regression(), "", wide({{"train.off", {"memory_recovery"}}})),
               c10::OutOfMemoryError);
  toys::at_point = nullptr;
}

TEST(Memory, AValidationThatDoesNotFitIsSplitToo) {
  int validations = 0;
  toys::at_point = [&](const char* point) {
    if (std::string_view(point) == "measure" && validations++ == 0) throw c10::OutOfMemoryError({"", "", 0}, "not enough memory");
  };
  const RunOutcome run = toys::run(toys::grouped_regression(), "", wide({{"train.validate_every", 2}}));
  toys::at_point = nullptr;
  EXPECT_EQ(run.summary["memory"]["micro_batches"], 2);
  EXPECT_TRUE(run.summary["metrics"].contains("val_loss"));
}

// Before the first step no batch of the training has been seen yet.
TEST(Memory, AValidationBeforeTheFirstStepIsSplitToo) {
  int validations = 0;
  toys::at_point = [&](const char* point) {
    if (std::string_view(point) == "measure" && validations++ == 0) throw c10::OutOfMemoryError({"", "", 0}, "not enough memory");
  };
  const RunOutcome run =
      toys::run(toys::grouped_regression(), "", wide({{"train.validate_at_start", true}, {"train.max_steps", 1}}));
  toys::at_point = nullptr;
  EXPECT_EQ(run.summary["memory"]["micro_batches"], 2);
  EXPECT_EQ(run.summary["steps"], 1);
}

TEST(Memory, ATrialThatDoesNotFitIsMadeOnLess) {
  if (std::string reason; !precision::hardware_has_fast_bf16(at::kCPU, &reason)) GTEST_SKIP() << "no trial: " << reason;
  int passes = 0;
  toys::at_point = [&](const char* point) {
    if (std::string_view(point) == "loss" && passes++ == 0) throw c10::OutOfMemoryError({"", "", 0}, "not enough memory");
  };
  const RunOutcome run =
      toys::run(toys::grouped_regression(), "", wide({{"precision.dtype", "auto"}, {"train.off", {"tried_convolutions"}}}));
  toys::at_point = nullptr;
  EXPECT_EQ(run.summary["memory"]["micro_batches"], 1) << "the step itself fits";
  EXPECT_THAT(run.summary["choices"].dump(), AllOf(HasSubstr("a trial "), HasSubstr("tried on 1/2 of a batch")));
}

TEST(Memory, ALimitOrABudgetThatIsNoAmountIsAConfigError) {
  try {
    (void)toys::run(toys::grouped_regression(), "", {{"memory.budget", "lots"}, {"memory.limit", "60%"}});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.problems().size(), 2U);
    EXPECT_THAT(error.what(), HasSubstr("budget \"lots\" is not an amount of memory"));
    EXPECT_THAT(error.what(), HasSubstr("limit \"60%\" is not an amount of memory"));
  }
  EXPECT_THROW(
      (void)toys::run(toys::grouped_regression(), "", {{"memory.budget", "1 GB"}, {"memory.recompute", Json::array({"all"})}}),
      ConfigError);
}

TEST(Memory, ABlockThatTheModelDoesNotHaveIsAConfigError) {
  try {
    (void)toys::run(toys::grouped_regression(), "", {{"memory.recompute", Json::array({"trunk"})}});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the model has no block \"trunk\""));
  }
}

TEST(MaxBatch, DoublesThenHalvesTheGapAndReturnsOnlyWhatRan) {
  std::vector<std::int64_t> tried;
  const auto up_to = [&tried](std::int64_t most, std::int64_t samples) {
    tried.clear();
    return [&tried, most, samples](std::int64_t size) -> Json {
      tried.push_back(size);
      if (size > most) throw c10::OutOfMemoryError({"", "", 0}, "not enough memory\nbacktrace");
      return {{"fits", true},
              {"samples_per_epoch", samples},
              {"whole_epoch", size >= samples},
              {"peak_bytes", size},
              {"limit_bytes", 1},
              {"step_ms", 1.0},
              {"samples_per_s", 1.0}};
    };
  };
  Json found = search_max_batch({}, up_to(21, 1000));
  EXPECT_EQ(found["batch_size"], 21);
  EXPECT_EQ(found["bound"], "memory");
  EXPECT_THAT(tried, ElementsAre(1, 2, 4, 8, 16, 32, 24, 20, 22, 21));
  EXPECT_EQ(found["tried"][5]["reason"], "not enough memory");
  found = search_max_batch({}, up_to(5000, 100));
  EXPECT_EQ(found["batch_size"], 100);
  EXPECT_EQ(found["bound"], "data");
  found = search_max_batch({.from = 3, .most = 7}, up_to(5000, 100));
  EXPECT_EQ(found["batch_size"], 7);
  EXPECT_EQ(found["bound"], "most");
  found = search_max_batch({.from = 8}, up_to(4, 100));
  EXPECT_EQ(found["batch_size"], 0);
}

TEST(MaxBatch, DoesNotTryWhatWouldTakeMoreThanTheProcessMayHold) {
  std::vector<std::int64_t> tried;
  const auto step = [&tried](std::int64_t size) -> Json {
    tried.push_back(size);
    return {{"fits", true},         {"samples_per_epoch", 1000},    {"whole_epoch", false},
            {"peak_bytes", size},   {"limit_bytes", 1000},          {"step_ms", 1.0},
            {"samples_per_s", 1.0}, {"resident_before_bytes", 100}, {"resident_bytes", 100 + 10 * size}};
  };
  const Json found = search_max_batch({}, step);
  EXPECT_THAT(tried, ElementsAre(1, 2, 4, 8, 16, 32, 64, 80, 88)) << "90 would be the last";
  EXPECT_EQ(found["batch_size"], 88);
  EXPECT_EQ(found["bound"], "memory");
  EXPECT_EQ(found["tried"][7]["reason"], "it needs 1.4 kB, extrapolated from batch size 64, but the limit is 1.0 kB");
}

}  // namespace
}  // namespace millrace
