// What a step does: accumulation, skips, switches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/base/error.h"
#include "millrace/snapshot/snapshot.h"
#include "toys.h"

namespace millrace {
namespace {

Tensors weights_after(const Json& config) {
  const toys::TemporaryFolder folder;
  (void)toys::run(toys::grouped_regression(), folder.path(), config);
  auto content = snapshot::load_newest(Fs::real(), folder.path(), [](const auto&, const auto&) {});
  return content->models.at("model");
}

double largest_difference(const Tensors& a, const Tensors& b) {
  double largest = 0;
  for (const auto& [name, tensor] : a) largest = std::max(largest, (tensor - b.at(name)).abs().max().item<double>());
  return largest;
}

const Json kFewSteps = {{"train.epochs", 0}, {"train.max_steps", 5}, {"data.shuffle", false}, {"toy.rows", 40}};

Json few(const Json& more) {
  Json config = kFewSteps;
  config.update(more);
  return config;
}

TEST(Step, FourMicroBatchesOfTwoEqualOneBatchOfEight) {
  const Tensors one = weights_after(few({{"data.batch_size", 8}}));
  const Tensors four = weights_after(few({{"data.batch_size", 2}, {"optim.accumulate", 4}}));
  EXPECT_LT(largest_difference(one, four), 1e-6);
  const Tensors other = weights_after(few({{"data.batch_size", 2}, {"optim.accumulate", 2}}));
  EXPECT_GT(largest_difference(one, other), 1e-4) << "the comparison must be able to fail";
}

TEST(Step, WhatAnObjectiveDoesAfterAnUpdateHoldsInWeightsAndAverages) {
  const Json averaged = {{"toy.clamp", 0.05}, {"optim.ema_decay", 0.5}};
  const Tensors free = weights_after(few(Json::object()));
  const Tensors clamped = weights_after(few(averaged));
  EXPECT_GT(free.at("trunk.weight").abs().max().item<double>(), 0.1) << "the clamp must have something to do";
  EXPECT_LE(clamped.at("trunk.weight").abs().max().item<double>(), 0.05 + 1e-7);
  // Kill and resume change nothing of it.
  const toys::TemporaryFolder folder;
  Json first = few(averaged);
  first["train.max_steps"] = 3;
  (void)toys::run(toys::grouped_regression(), folder.path(), first);
  const RunOutcome whole = toys::run(toys::grouped_regression(), "", few(averaged));
  EXPECT_EQ(toys::run(toys::grouped_regression(), folder.path(), few(averaged)).summary["state_sha256"],
            whole.summary["state_sha256"]);
}

TEST(Step, ATableOfTheLastValidationIsKept) {
  const toys::TemporaryFolder folder;
  (void)toys::run(toys::grouped_regression(), folder.path(), few({{"train.validate_every", 2}}));
  EXPECT_EQ(Fs::real().read_file(folder.path() / "rows.csv"), "what,rows\nvalidated,120\n");
}

TEST(Step, APartialAccumulationAtTheEndOfAnEpochIsAStepOfItsOwn) {
  // 41 rows a set in batches of 4: eleven micro-batches; by four: steps of 4, 4 and 3.
  const RunOutcome run = toys::run(toys::grouped_regression(), "", {{"train.epochs", 2}, {"optim.accumulate", 4}});
  EXPECT_EQ(run.summary["steps"], 6);
  EXPECT_EQ(run.summary["samples"], 2 * 3 * 41);
}

std::string planned(const RunOutcome& run, const std::string& option) {
  for (const Json& choice : run.summary.at("choices")) {
    if (choice.at("option") == option)
      return choice.at("value").get<std::string>() + ": " + choice.at("reason").get<std::string>();
  }
  return "";
}

// Three batches of 12 rows an epoch. The global batch, for which the rate is scaled, is that of the steps that are made.
TEST(Step, AnEpochWithTooFewBatchesToAccumulateIsInThePlan) {
  const Json config = {{"train.epochs", 2},
                       {"toy.rows", 12},
                       {"optim.accumulate", 8},
                       {"optim.lr_scaling", "linear"},
                       {"optim.lr_scaling_batch", 18}};
  const RunOutcome run = toys::run(toys::grouped_regression(), "", config);
  EXPECT_EQ(run.summary["steps"], 2);
  EXPECT_EQ(planned(run, "optim.accumulate"),
            "3: not 8, because an epoch has only 3 batches, and all batches of a step are from one epoch");
  EXPECT_EQ(planned(run, "optim.learning_rate"), "0.04: 0.02 x (36 / 18)");
  EXPECT_EQ(planned(toys::run(toys::grouped_regression(), "", few({{"train.max_steps", 2}})), "optim.accumulate"), "");
}

TEST(Step, EpochsThatEndBeforeTheStepsThatAreAskedForAreInThePlan) {
  const RunOutcome run =
      toys::run(toys::grouped_regression(), "", {{"train.epochs", 1}, {"train.max_steps", 100}, {"toy.rows", 12}});
  EXPECT_EQ(run.summary["steps"], 3);
  EXPECT_EQ(planned(run, "train.max_steps"),
            "100: not reached: train.epochs=1 ends the run at step 3. Set train.epochs=0 if train.max_steps is to decide");
  EXPECT_EQ(planned(toys::run(toys::grouped_regression(), "", few({{"train.max_steps", 2}})), "train.max_steps"), "");
}

TEST(Step, AScheduleThatCanNotDoWhatItIsForIsInThePlan) {
  const Json config =
      few({{"train.max_steps", 4}, {"optim.schedule", "cosine"}, {"optim.warmup_steps", 10}, {"optim.min_learning_rate", 0.1}});
  const RunOutcome run = toys::run(toys::grouped_regression(), "", config);
  EXPECT_EQ(planned(run, "optim.warmup_steps"),
            "10: the run has only 4 steps, so the learning rate ends at 0.008 and never reaches 0.02");
  EXPECT_EQ(planned(run, "optim.min_learning_rate"),
            "0.1: above the learning rate (0.02), so the schedule can't lower the rate to this value");
  const RunOutcome sound = toys::run(toys::grouped_regression(), "",
                                     few({{"train.max_steps", 4}, {"optim.schedule", "cosine"}, {"optim.warmup_steps", 4}}));
  EXPECT_EQ(planned(sound, "optim.warmup_steps"), "");
  EXPECT_EQ(planned(sound, "optim.min_learning_rate"), "");
}

TEST(Step, ANonFiniteStepChangesNothingAndIsCounted) {
  const Tensors before = weights_after(few({{"train.max_steps", 3}, {"toy.bad_from", 3}}));
  const Tensors after = weights_after(few({{"train.max_steps", 4}, {"toy.bad_from", 3}}));
  EXPECT_EQ(largest_difference(before, after), 0.0);
  const RunOutcome run = toys::run(toys::grouped_regression(), "", few({{"toy.bad_from", 3}, {"toy.bad_steps", 1}}));
  EXPECT_EQ(run.summary["skipped_steps"], 1.0);
}

TEST(Step, TenNonFiniteStepsInARowEndTheRunAndNameTheLastGoodSnapshot) {
  const toys::TemporaryFolder folder;
  try {
    (void)toys::run(toys::grouped_regression(), folder.path(),
                    few({{"train.max_steps", 60},
                         {"toy.bad_from", 7},
                         {"toy.bad_steps", 50},
                         {"snapshot.every_steps", 5},
                         {"log.every", 1}}));
    FAIL();
  } catch (const TrainingDiverged& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("not finite in 10 steps in a row"));
    EXPECT_THAT(error.what(), testing::HasSubstr("step-00000015"));
  }
}

TEST(Step, WithDeviceSkipOffTheHostSkipsTheSameSteps) {
  const Json config = few({{"toy.dropout", 0.25}, {"toy.bad_from", 2}});
  Json off = config;
  off["train.off"] = {"device_skip"};
  const RunOutcome on = toys::run(toys::grouped_regression(), "", config);
  const RunOutcome host = toys::run(toys::grouped_regression(), "", off);
  EXPECT_GT(on.summary["skipped_steps"], 0.0);
  EXPECT_EQ(on.summary["skipped_steps"], host.summary["skipped_steps"]);
  EXPECT_EQ(on.summary["state_sha256"], host.summary["state_sha256"]);
}

TEST(Switches, AnUnknownNameIsAConfigErrorWithTheNearest) {
  const std::vector<std::string> off = {"fused-dropuot"};
  try {
    const Switches switches(off);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("did you mean fused_dropout?"));
  }
}

}  // namespace
}  // namespace millrace
