// A session from config to summary, on the toys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/format/csv.h"
#include "millrace/snapshot/snapshot.h"
#include "toys.h"

namespace millrace {
namespace {

using testing::HasSubstr;

TEST(Adversarial, BothObjectivesMoveTheirOwnParametersAndTheGeneratorLearns) {
  const RunOutcome before = toys::run(toys::adversarial(), "", {{"train.max_steps", 1}});
  const RunOutcome after = toys::run(toys::adversarial(), "", {});
  const double gap_before = before.summary["metrics"]["mean_gap"]["last"].get<double>();
  const double gap_after = after.summary["metrics"]["mean_gap"]["last"].get<double>();
  EXPECT_GT(gap_before, 1.5);
  EXPECT_LT(gap_after, 0.5) << "the generator's points must have moved to the data";
  EXPECT_TRUE(after.summary["metrics"].contains("val_generator"));
  EXPECT_TRUE(after.summary["metrics"].contains("val_discriminator"));
}

TEST(Adversarial, WeightsAreSavedPerObjective) {
  const toys::TemporaryFolder folder;
  (void)toys::run(toys::adversarial(), folder.path(), {{"train.max_steps", 2}});
  const auto found = snapshot::list(Fs::real(), folder.path());
  ASSERT_EQ(found.size(), 1U);
  EXPECT_TRUE(std::filesystem::exists(found[0].path / "model.generator.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(found[0].path / "model.discriminator.safetensors"));
}

TEST(GroupedRegression, LearnsFromThreeShapesAtOnce) {
  const RunOutcome run = toys::run(toys::grouped_regression(), "", {{"train.epochs", 60}});
  EXPECT_LT(run.summary["metrics"]["val_loss"]["last"].get<double>(), 0.25);
  EXPECT_GT(run.summary["loss"]["first"].get<double>(), 1.0);
  EXPECT_EQ(run.summary["exit_reason"], "epochs");
  EXPECT_EQ(run.summary["samples"], 60 * 3 * 41);
}

TEST(Session, WritesTheFilesOfARun) {
  const toys::TemporaryFolder folder;
  const RunOutcome run = toys::run(toys::grouped_regression(), folder.path(), {});
  for (const char* name : {"config.json", "plan.json", "log.jsonl", "summary.json", "history.csv", "snapshots"}) {
    EXPECT_TRUE(std::filesystem::exists(folder.path() / name)) << name;
  }
  std::ifstream file(folder.path() / "summary.json");
  const Json summary = Json::parse(file);
  EXPECT_EQ(summary["state_sha256"], run.summary["state_sha256"]);
  EXPECT_EQ(summary["state_sha256"].get<std::string>().size(), 64U);
  EXPECT_EQ(run.exit_code, 0);
  std::ifstream history(folder.path() / "history.csv");
  int lines = 0;
  for (std::string line; std::getline(history, line);) ++lines;
  EXPECT_EQ(lines, 1 + 3);
}

// A validation in the middle of an epoch is in that epoch's row, also if the run was resumed in between; an epoch without one has
// empty cells.
TEST(Session, TheHistoryHasTheNewestValidationOfEachEpoch) {
  const auto history_of = [](int stopped_in) {
    const toys::TemporaryFolder folder;
    int losses = 0;
    toys::at_point = [&](const char* point) {
      if (std::string_view(point) == "loss" && ++losses == stopped_in) throw std::runtime_error("stopped by the test");
    };
    const auto train = [&] {
      (void)toys::run(toys::grouped_regression(), folder.path(),
                      {{"train.max_steps", 12}, {"toy.rows", 16}, {"train.validate_every", 6}, {"log.every", 100}});
    };
    if (stopped_in > 0) {
      EXPECT_THROW(train(), RecipeError);
    }
    train();
    toys::at_point = nullptr;
    std::ifstream file(folder.path() / "history.csv");
    std::vector<std::string> lines;  // without the times
    for (std::string line; std::getline(file, line);) {
      const format::CsvTable table = format::parse_csv(line + "\n");
      std::vector<std::string> cells = table.rows.at(0);
      cells.erase(cells.begin() + 3, cells.begin() + 5);
      lines.push_back(joined(cells, ","));
    }
    return lines;
  };
  const std::vector<std::string> lines = history_of(0);
  ASSERT_EQ(lines.size(), 4U) << "four batches an epoch";
  EXPECT_THAT(lines[0], testing::StartsWith("epoch,train_loss,val_loss,"));
  const auto cells = [&](std::size_t row) { return format::parse_csv(lines.at(row) + "\n").rows.at(0); };
  EXPECT_EQ(cells(1).at(2), "");
  EXPECT_NE(cells(2).at(2), "") << "that of step 6";
  EXPECT_NE(cells(2).at(3), "") << "a metric of its own";
  EXPECT_NE(cells(3).at(2), cells(2).at(2)) << "that of step 12";
  EXPECT_EQ(history_of(12), lines) << "stopped in step 8, after the validation of step 6";
}

// Five batches an epoch by two are three steps, the last of one batch. Step 8 is of the third epoch.
TEST(Session, TheHistoryKnowsTheEpochOfAValidationWhereAnEpochEndsInAPartOfAStep) {
  const toys::TemporaryFolder folder;
  (void)toys::run(
      toys::grouped_regression(), folder.path(),
      {{"train.max_steps", 12}, {"toy.rows", 20}, {"optim.accumulate", 2}, {"train.validate_every", 8}, {"log.every", 100}});
  std::ifstream file(folder.path() / "history.csv");
  std::vector<bool> validated;
  std::string line;
  for (std::getline(file, line); std::getline(file, line);)
    validated.push_back(!format::parse_csv(line + "\n").rows.at(0).at(2).empty());
  EXPECT_THAT(validated, testing::ElementsAre(false, false, true)) << "three epochs";
}

TEST(Session, AStepBelongsToTheEpochItWasMadeIn) {
  const toys::TemporaryFolder folder;
  (void)toys::run(toys::grouped_regression(), folder.path(), {{"train.epochs", 2}, {"toy.rows", 8}, {"log.every", 1}});
  std::vector<int> epochs;
  for (const Json& line : toys::log_of(folder.path(), "step")) epochs.push_back(line.at("epoch").get<int>());
  EXPECT_THAT(epochs, testing::ElementsAre(1, 1, 2, 2)) << "two batches of 4 rows an epoch";
}

TEST(Session, ADryRunWritesNothing) {
  const toys::TemporaryFolder folder;
  const Entry entry = toys::grouped_regression();
  const config::Schema schema = schema_of(entry);
  config::Layers layers(schema);
  layers.add_values(entry.defaults, "recipe");
  layers.add_values({{"run.dir", (folder.path() / "run").string()}}, "test");
  telemetry::Console console(telemetry::Console::Mode::quiet);
  RunRequest request{.entry = &entry, .config = layers.resolve(), .dry_run = DryRun::plan, .console = &console};
  EXPECT_EQ(run_training(request).exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "run"));
}

TEST(Session, HeaderAndPlanAreOnTheScreenBeforeAnythingIsTried) {
  const toys::TemporaryFolder folder;
  const Entry entry = toys::grouped_regression();
  const config::Schema schema = schema_of(entry);
  config::Layers layers(schema);
  layers.add_values(entry.defaults, "recipe");
  layers.add_values({{"precision.dtype", "auto"}, {"run.dir", (folder.path() / "run").string()}}, "test");
  telemetry::Console console(telemetry::Console::Mode::automatic);
  const RunRequest request{.entry = &entry, .config = layers.resolve(), .console = &console};
  toys::at_point = [](const char* point) {
    if (std::string_view(point) == "loss") throw std::runtime_error("the first step that is tried");
  };
  testing::internal::CaptureStdout();
  EXPECT_THROW((void)run_training(request), RecipeError);
  const std::string text = testing::internal::GetCapturedStdout();
  toys::at_point = nullptr;
  EXPECT_THAT(text, testing::AllOf(HasSubstr("recipe grouped_regression"), HasSubstr("\nplan\n"), HasSubstr("device.threads")));
}

TEST(Session, ARunWithoutAnEndIsAConfigError) {
  try {
    (void)toys::run(toys::grouped_regression(), "", {{"train.epochs", 0}});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("train.epochs and train.max_steps are both 0"));
  }
}

TEST(Session, AFolderInUseIsRefused) {
  const toys::TemporaryFolder folder;
  const RunFolder held(Fs::real(), {folder.path()}, "grouped_regression", /*fresh=*/false);
  EXPECT_THROW((void)toys::run(toys::grouped_regression(), folder.path(), {}), UsageError);
}

TEST(Session, ACompleteRunSaysSoAndKeepsItsSummary) {
  const toys::TemporaryFolder folder;
  const RunOutcome first = toys::run(toys::grouped_regression(), folder.path(), {});
  const RunOutcome again = toys::run(toys::grouped_regression(), folder.path(), {});
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_EQ(again.summary["state_sha256"], first.summary["state_sha256"]);
  EXPECT_EQ(snapshot::list(Fs::real(), folder.path()).back().step, first.summary["steps"].get<std::int64_t>());
}

TEST(Session, FreshStartsOver) {
  const toys::TemporaryFolder folder;
  const RunOutcome first = toys::run(toys::grouped_regression(), folder.path(), {});
  const RunOutcome again = toys::run(toys::grouped_regression(), folder.path(), {{"train.max_steps", 3}}, /*fresh=*/true);
  EXPECT_EQ(again.summary["steps"], 3);
  EXPECT_EQ(snapshot::list(Fs::real(), folder.path()).size(), 1U);
}

TEST(Session, AChangedConfigOnResumeIsRefusedWithTheDifference) {
  const toys::TemporaryFolder folder;
  (void)toys::run(toys::grouped_regression(), folder.path(), {{"train.max_steps", 4}});
  try {
    (void)toys::run(toys::grouped_regression(), folder.path(),
                    {{"train.max_steps", 8}, {"optim.learning_rate", 0.5}, {"toy.noise", 0.3}});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.problems().size(), 2U);
    EXPECT_THAT(error.what(), HasSubstr("optim.learning_rate is 0.5, but the run in this folder was started with 0.02"));
    EXPECT_EQ(error.exit_code(), 2);
  }
}

TEST(Session, ASlashAfterTheFolderHidesNoChange) {
  const toys::TemporaryFolder folder;
  const std::filesystem::path with_slash = folder.path() / "";
  (void)toys::run(toys::grouped_regression(), with_slash, {{"train.max_steps", 3}});
  EXPECT_THROW((void)toys::run(toys::grouped_regression(), with_slash, {{"train.max_steps", 6}, {"optim.learning_rate", 0.5}}),
               ConfigError);
  const RunOutcome same = toys::run(toys::grouped_regression(), with_slash, {{"train.max_steps", 6}});
  EXPECT_EQ(same.run_folder, folder.path());
}

TEST(Session, EarlyStopEndsCleanly) {
  // Too high a rate: validation gets no better after the first epochs.
  const RunOutcome run = toys::run(toys::grouped_regression(), "",
                                   {{"train.epochs", 400}, {"train.early_stop_patience", 2}, {"optim.learning_rate", 0.05}});
  EXPECT_EQ(run.summary["exit_reason"], "early_stop");
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_LT(run.summary["epochs"].get<int>(), 400);
}

// What a run prints.
std::string said_by(const std::filesystem::path& folder, const Json& config) {
  const Entry entry = toys::grouped_regression();
  const config::Schema schema = schema_of(entry);
  config::Layers layers(schema);
  layers.add_values(entry.defaults, "recipe");
  layers.add_values({{"train.off", {"rehearsal"}}, {"device.kernels", "ours"}, {"run.dir", folder.string()}}, "test");
  layers.add_values(config, "test");
  telemetry::Console console(telemetry::Console::Mode::automatic);
  const RunRequest request{.entry = &entry, .config = layers.resolve(), .console = &console};
  testing::internal::CaptureStdout();
  (void)run_training(request);
  return testing::internal::GetCapturedStdout();
}

TEST(Session, AnEarlyStopIsOnTheScreenWithTheKeyThatDecidedIt) {
  const toys::TemporaryFolder folder;
  const Json config = {{"train.epochs", 400}, {"train.early_stop_patience", 2}, {"optim.learning_rate", 0.05}};
  EXPECT_THAT(said_by(folder.path() / "run", config),
              HasSubstr("\nstopped early: the last 2 validations gave no better val_loss (train.early_stop_patience)"));
  EXPECT_THAT(said_by(folder.path() / "run", config),
              testing::AllOf(HasSubstr("already complete at step "), HasSubstr("raise train.early_stop_patience"),
                             testing::Not(HasSubstr("train.max_steps"))));
}

// The error falls as the toy learns, so the highest is that of the first epoch.
TEST(Session, TheEndSaysWhetherTheBestSnapshotIsThere) {
  const toys::TemporaryFolder folder;
  Json config = {{"train.epochs", 2}, {"snapshot.best_metric", "absolute_error"}, {"snapshot.best_is", "highest"}};
  EXPECT_THAT(said_by(folder.path() / "run", config),
              testing::AllOf(HasSubstr(" at step 11, the last "), HasSubstr(": predict, eval and export use the best")));
  std::filesystem::remove_all(folder.path() / "run" / "snapshots" / "step-00000011");
  config["train.epochs"] = 3;
  EXPECT_THAT(said_by(folder.path() / "run", config),
              testing::AllOf(HasSubstr(" at step 11, the last "),
                             HasSubstr("the snapshot of that step is not there, so predict, eval and export use the newest")));
}

TEST(Session, ADamagedSnapshotIsPassedOverAndTheOneBeforeIsUsed) {
  const toys::TemporaryFolder folder;
  const Json slow = {{"snapshot.every_steps", 5}, {"snapshot.every_epochs", 0}, {"snapshot.keep_best", false}};
  Json first = slow;
  first["train.max_steps"] = 20;
  (void)toys::run(toys::grouped_regression(), folder.path(), first);
  const auto found = snapshot::list(Fs::real(), folder.path());
  ASSERT_GE(found.size(), 2U);
  const auto file = found.back().path / "model.safetensors";
  std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekg(-3, std::ios::end);
  const int byte = bytes.get();
  bytes.seekp(-3, std::ios::end);
  bytes.put(static_cast<char>(byte ^ 4));
  bytes.close();
  Json longer = slow;
  longer["train.max_steps"] = 25;
  const RunOutcome damaged = toys::run(toys::grouped_regression(), folder.path(), longer);
  const RunOutcome whole = toys::run(toys::grouped_regression(), "", longer);
  EXPECT_EQ(damaged.summary["state_sha256"], whole.summary["state_sha256"]);
}

// TensorBoard drops the events of an earlier process, which may have been killed before its first snapshot, at a session's start.
TEST(Session, TheEventsOfANewRunBeginASession) {
  const toys::TemporaryFolder folder;
  (void)toys::run(toys::grouped_regression(), folder.path(), {{"train.max_steps", 2}, {"log.tensorboard", true}});
  std::string events;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) events += Fs::real().read_file(entry.path());
  }
  EXPECT_THAT(events, HasSubstr("\x3a\x02\x08\x01")) << "field 7 of an event: a session log with the status START";
}

TEST(Session, ARunWhoseSnapshotsCannotBeUsedSaysThatItBeginsAgain) {
  const toys::TemporaryFolder folder;
  const Json config = {{"train.max_steps", 6}};
  (void)toys::run(toys::grouped_regression(), folder.path(), config);
  for (const snapshot::Found& found : snapshot::list(Fs::real(), folder.path()))
    std::ofstream(found.path / "manifest.json") << "x\n";
  testing::internal::CaptureStderr();
  (void)toys::run(toys::grouped_regression(), folder.path(), config);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("can be used, so the run begins again at step 0"));
}

}  // namespace
}  // namespace millrace
