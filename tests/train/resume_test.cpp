// Resumed = uninterrupted, to the bit, wherever a run was stopped.
#include <gtest/gtest.h>

#include <sstream>

#include "millrace/base/error.h"
#include "millrace/base/fs.h"
#include "toys.h"

namespace millrace {
namespace {

struct ResumeCase {
  const char* name;
  Json config;
};

Json merged(Json config, const Json& more) {
  config.update(more);
  return config;
}

// 41 rows in batches of 4: eleven batches an epoch, the last of one row per set; accumulated by 3: four steps, the last partial.
const std::vector<ResumeCase>& cases() {
  static const std::vector<ResumeCase> all = {
      {"plain", {}},
      {"accumulated", {{"optim.accumulate", 3}}},
      {"dropout", {{"toy.dropout", 0.3}}},
      {"bf16", {{"precision.dtype", "bf16"}, {"toy.dropout", 0.2}}},
      {"sgd_plateau",
       {{"optim.name", "sgd"}, {"optim.schedule", "plateau"}, {"optim.plateau_patience", 0}, {"optim.clip_norm", 1.0}}},
      {"cosine", {{"optim.schedule", "cosine"}, {"optim.warmup_steps", 4}, {"optim.clip_value", 0.1}}},
      {"readers", {{"data.workers", 2}}},
      {"no_bad_steps", {{"toy.bad_from", 5}, {"toy.bad_steps", 2}}},
      {"drawn_by_libtorch", {{"toy.drawn", 0.2}, {"toy.dropout", 0.3}}},
  };
  return all;
}

class Resume : public testing::TestWithParam<std::tuple<std::size_t, int>> {};

TEST_P(Resume, AfterAStopEqualsTheUninterruptedRun) {
  const auto& [index, stop] = GetParam();
  const ResumeCase& c = cases()[index];
  // Schedules know the run's length, so both runs must have the same one; the first half ends by a signal-free stop at `stop`.
  const Json whole = merged(c.config, {{"train.epochs", 3}, {"train.validate_every", 7}, {"snapshot.every_epochs", 0}});
  const RunOutcome straight = toys::run(toys::grouped_regression(), "", whole);
  const toys::TemporaryFolder folder;
  int seen = 0;
  toys::at_point = [&](const char* point) {
    if (std::string_view(point) == "loss" && seen++ == stop) throw std::runtime_error("stopped by the test");
  };
  EXPECT_THROW((void)toys::run(toys::grouped_regression(), folder.path(), merged(whole, {{"snapshot.every_steps", 1}})),
               RecipeError);
  toys::at_point = nullptr;
  Json second = merged(whole, {{"snapshot.every_steps", 4}});
  if (c.config.contains("data.workers")) second["data.workers"] = 0;
  const RunOutcome resumed = toys::run(toys::grouped_regression(), folder.path(), second);
  EXPECT_EQ(resumed.summary["state_sha256"], straight.summary["state_sha256"]) << c.name << " stopped at forward pass " << stop;
  EXPECT_EQ(resumed.summary["samples"], straight.summary["samples"]);
}

// Forward passes, validation's among them: in the first step, mid-epoch, around the epoch's end, in the second epoch.
INSTANTIATE_TEST_SUITE_P(Stops, Resume, testing::Combine(testing::Range<std::size_t>(0, 9), testing::Values(1, 4, 10, 11, 23)),
                         [](const auto& param_info) {
                           return std::string(cases()[std::get<0>(param_info.param)].name) + "_at_" +
                                  std::to_string(std::get<1>(param_info.param));
                         });

// What LibTorch draws is a function of the seed and the place: no generator is saved, and what else draws leaves no trace.
TEST(Resume, WhatARecipeDrawsFromLibTorchDependsOnNothingElse) {
  const Json drawn = {{"toy.drawn", 0.2}, {"train.max_steps", 20}, {"train.validate_every", 0}};
  const RunOutcome plain = toys::run(toys::grouped_regression(), "", drawn);
  const auto state_with = [&](const Json& more) {
    return toys::run(toys::grouped_regression(), "", merged(drawn, more)).summary["state_sha256"];
  };
  EXPECT_EQ(state_with({{"train.off", Json::array()}}), plain.summary["state_sha256"]) << "a rehearsal draws too";
  EXPECT_NE(state_with({{"train.seed", 1}}), plain.summary["state_sha256"]);
  const toys::TemporaryFolder folder;
  (void)toys::run(toys::grouped_regression(), folder.path(), merged(drawn, {{"snapshot.every_steps", 20}}));
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder.path()))
    EXPECT_NE(file.path().filename(), "rng.safetensors");
}

TEST(Resume, ALongerRunGoesOnAsIfItHadNeverEnded) {
  const toys::TemporaryFolder folder;
  (void)toys::run(toys::grouped_regression(), folder.path(), {{"train.max_steps", 13}});
  const RunOutcome resumed = toys::run(toys::grouped_regression(), folder.path(), {{"train.max_steps", 29}});
  const RunOutcome straight = toys::run(toys::grouped_regression(), "", {{"train.max_steps", 29}});
  EXPECT_EQ(resumed.summary["state_sha256"], straight.summary["state_sha256"]);
}

TEST(Resume, ChainsOfThree) {
  const toys::TemporaryFolder folder;
  for (const int steps : {3, 12, 20, 31}) (void)toys::run(toys::adversarial(), folder.path(), {{"train.max_steps", steps}});
  const RunOutcome chained = toys::run(toys::adversarial(), folder.path(), {{"train.max_steps", 40}});
  const RunOutcome straight = toys::run(toys::adversarial(), "", {{"train.max_steps", 40}});
  EXPECT_EQ(chained.summary["state_sha256"], straight.summary["state_sha256"]);
}

TEST(Resume, EqualRunsAreEqual) {
  const RunOutcome one = toys::run(toys::grouped_regression(), "", {{"toy.dropout", 0.5}});
  const RunOutcome two = toys::run(toys::grouped_regression(), "", {{"toy.dropout", 0.5}});
  const RunOutcome other = toys::run(toys::grouped_regression(), "", {{"toy.dropout", 0.5}, {"train.seed", 1}});
  EXPECT_EQ(one.summary["state_sha256"], two.summary["state_sha256"]);
  EXPECT_NE(one.summary["state_sha256"], other.summary["state_sha256"]);
}

// As a kill between the last save and the summary leaves it.
TEST(Resume, ARunThatOnlyHasItsEndToReportReportsTheSameState) {
  for (const int every : {5, 7}) {  // the last step is validated in the loop, or for the report alone
    const toys::TemporaryFolder folder;
    const Json config = {{"train.max_steps", 20}, {"train.validate_every", every}};
    const RunOutcome straight = toys::run(toys::grouped_regression(), folder.path(), config);
    std::filesystem::remove(folder.path() / "summary.json");
    const RunOutcome resumed = toys::run(toys::grouped_regression(), folder.path(), config);
    EXPECT_EQ(resumed.summary["state_sha256"], straight.summary["state_sha256"]) << "validated every " << every;
    EXPECT_EQ(resumed.summary["metrics"]["val_loss"]["best"], straight.summary["metrics"]["val_loss"]["best"]);
  }
}

// Epochs count from the end of the first: of seven, the first, the fourth and the seventh.
TEST(Resume, ValidationsEverySoManyEpochsGoOnWhereTheyWere) {
  const toys::TemporaryFolder folder;
  const auto validations = [&] {
    std::istringstream text(Fs::real().read_file(folder.path() / "log.jsonl"));
    int count = 0;
    for (std::string line; std::getline(text, line);) count += line.find("\"kind\":\"validation\"") != std::string::npos ? 1 : 0;
    return count;
  };
  (void)toys::run(toys::grouped_regression(), folder.path(), {{"train.epochs", 3}, {"train.validate_epochs", 3}});
  EXPECT_EQ(validations(), 2) << "the last validation of a run stands for its end";
  (void)toys::run(toys::grouped_regression(), folder.path(), {{"train.epochs", 7}, {"train.validate_epochs", 3}});
  EXPECT_EQ(validations(), 4);
}

TEST(Resume, FromAnotherRunsSnapshotStartsThere) {
  const toys::TemporaryFolder first;
  const toys::TemporaryFolder second;
  (void)toys::run(toys::grouped_regression(), first.path(), {{"train.max_steps", 9}});
  const RunOutcome resumed =
      toys::run(toys::grouped_regression(), second.path(), {{"train.max_steps", 15}, {"train.resume", first.path().string()}});
  const RunOutcome straight = toys::run(toys::grouped_regression(), "", {{"train.max_steps", 15}});
  EXPECT_EQ(resumed.summary["state_sha256"], straight.summary["state_sha256"]);
}

// The snapshots of the first run are not in the folder of the second: the best one there would be none.
TEST(Resume, InAnotherFolderTheBestIsOneOfThatFolder) {
  const toys::TemporaryFolder first;
  const toys::TemporaryFolder second;
  const Json config = {{"train.epochs", 2}, {"train.early_stop_patience", 1}};
  const RunOutcome before = toys::run(toys::grouped_regression(), first.path(), config);
  ASSERT_EQ(before.summary["best"]["step"], 22) << "the run learns";
  Json more = config;
  more.update({{"train.epochs", 3}, {"train.resume", first.path().string()}, {"optim.learning_rate", 5.0}});
  const RunOutcome after = toys::run(toys::grouped_regression(), second.path(), more);
  EXPECT_EQ(after.summary["exit_reason"], "epochs");
  EXPECT_EQ(after.summary["best"]["step"], 33);
  EXPECT_GT(after.summary["best"]["value"].get<double>(), before.summary["best"]["value"].get<double>())
      << "the second must be worse for this test to say something";
}

}  // namespace
}  // namespace millrace
