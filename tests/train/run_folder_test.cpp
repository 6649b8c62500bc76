// The files that a run may write, archive and delete in its folder, and when it is finished. Each test replays a command of a day
// of hostile use.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <map>

#include "millrace/base/error.h"
#include "millrace/snapshot/snapshot.h"
#include "millrace/system/signals.h"
#include "millrace/train/run_folder/run_folder.h"
#include "tests/support/fault_fs.h"
#include "tests/support/refusal.h"
#include "toys.h"

namespace millrace {
namespace {

namespace stdfs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

const Json kOften = {
    {"snapshot.every_steps", 1}, {"snapshot.every_epochs", 0}, {"snapshot.keep_best", false}, {"snapshot.keep_last", 20}};

Json combined(Json values, const Json& more) {
  if (more.is_object()) values.update(more);
  return values;
}

void put(const stdfs::path& path, const std::string& text) {
  stdfs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

std::string text_of(const stdfs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Every file below a folder; the lock's processes change with each start and are left out.
std::map<std::string, std::string> content_of(const stdfs::path& folder) {
  std::map<std::string, std::string> content;
  for (const auto& entry : stdfs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file() && entry.path().filename() != "lock")
      content[entry.path().lexically_relative(folder).string()] = text_of(entry.path());
  }
  return content;
}

std::vector<std::string> snapshots_in(const stdfs::path& run) {
  return stdfs::exists(run / "snapshots") ? Fs::real().list(run / "snapshots") : std::vector<std::string>{};
}

RunOutcome run(const stdfs::path& folder, const Json& values, bool fresh = false, Fs* fs = nullptr) {
  return toys::run(toys::grouped_regression(), folder, combined(kOften, values), fresh, fs);
}

std::string refusal(const stdfs::path& folder, const Json& values, bool fresh = false) {
  return millrace::refusal([&] { (void)run(folder, values, fresh); });
}

Json summary_of(const stdfs::path& run) { return Json::parse(text_of(run / "summary.json"), nullptr, false); }

// What of a summary does not depend on how often the run was interrupted.
Json lasting(const Json& summary) {
  Json kept;
  for (const char* key : {"steps", "epochs", "samples", "metrics", "loss", "exit_reason", "state_sha256", "skipped_steps"})
    kept[key] = summary[key];
  return kept;
}

class RunFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    install_signal_handlers();
    reset_pending_signal_for_test();
  }
  void TearDown() override {
    toys::at_point = nullptr;
    reset_pending_signal_for_test();
  }
  stdfs::path folder() const { return root_.path() / "run"; }
  stdfs::path step(int number) const { return folder() / "snapshots" / ("step-0000000" + std::to_string(number)); }

  toys::TemporaryFolder root_;
};

// ---- who may delete

TEST_F(RunFolderTest, DamagedSnapshotsDoNotCostTheOneJustWritten) {
  (void)run(folder(), {{"train.max_steps", 6}, {"snapshot.every_steps", 2}});
  stdfs::remove_all(step(2));
  for (const int number : {4, 6}) put(step(number) / "manifest.json", "x");
  (void)run(folder(), {{"train.max_steps", 3}, {"snapshot.every_steps", 2}, {"snapshot.keep_last", 2}});
  EXPECT_TRUE(stdfs::exists(step(3)));
  EXPECT_EQ(snapshot::load_newest(Fs::real(), folder(), nullptr)->step, 3);
}

TEST_F(RunFolderTest, GoingOnFromAnOlderSnapshotSetsTheLaterOnesAside) {
  const RunOutcome old = run(folder(), {{"train.max_steps", 10}, {"snapshot.keep_last", 10}});
  const Json from = {{"train.resume", step(3).string()}, {"snapshot.keep_last", 1}};
  const RunOutcome first = run(folder(), combined(from, {{"train.max_steps", 5}}));
  EXPECT_EQ(first.summary["steps"], 5);
  EXPECT_THAT(snapshots_in(folder()), ElementsAre("step-00000003", "step-00000005")) << "where it began from and the newest";
  const stdfs::path branch = folder() / "branches" / "step-00000010";
  EXPECT_EQ(snapshots_in(branch).size(), 7U);
  EXPECT_EQ(summary_of(branch)["state_sha256"], old.summary["state_sha256"]);
  EXPECT_EQ(read_config(Fs::real(), branch).values["train"]["max_steps"], 10);

  // The same command goes on with what it has saved; the branch is a run that goes on, too.
  const RunOutcome second = run(folder(), combined(from, {{"train.max_steps", 6}}));
  EXPECT_EQ(second.summary["samples"], run("", {{"train.max_steps", 6}}).summary["samples"]);
  EXPECT_THAT(snapshots_in(folder()), ElementsAre("step-00000005", "step-00000006"));
  EXPECT_EQ(run(branch, {{"train.max_steps", 11}}).summary["steps"], 11);
}

// A shell completes the name of a folder with a slash.
TEST_F(RunFolderTest, ASlashAfterTheSnapshotToBeginFromChangesNothing) {
  (void)run(folder(), {{"train.max_steps", 5}, {"snapshot.keep_last", 10}});
  const Json from = {{"train.resume", step(3).string() + "/"}, {"snapshot.keep_last", 10}};
  EXPECT_THAT(refusal(folder(), combined(from, {{"train.max_steps", 6}, {"optim.learning_rate", 0.5}})),
              HasSubstr("optim.learning_rate is 0.5"));
  EXPECT_THAT(refusal(folder(), combined(from, {{"train.max_steps", 6}}), /*fresh=*/true), HasSubstr("--fresh would remove"));
  (void)run(folder(), combined(from, {{"train.max_steps", 6}}));
  EXPECT_EQ(snapshots_in(folder()).size(), 6U) << "the three before it stay";
  EXPECT_THAT(snapshots_in(folder() / "branches" / "step-00000005"), ElementsAre("step-00000004", "step-00000005"));
}

TEST_F(RunFolderTest, ABranchThatNeverSavedIsTakenBack) {
  (void)run(folder(), {{"train.max_steps", 5}});
  const auto before = content_of(folder() / "snapshots");
  toys::at_point = [](const char* point) {
    if (std::string_view(point) == "loss") throw DataError({"unreadable", "a test", "repair it"});
  };
  EXPECT_THAT(refusal(folder(), {{"train.max_steps", 9}, {"train.resume", step(2).string()}}), HasSubstr("unreadable"));
  EXPECT_EQ(content_of(folder() / "snapshots"), before);
  toys::at_point = nullptr;
  EXPECT_EQ(run(folder(), {{"train.max_steps", 9}}).summary["steps"], 9);
}

TEST_F(RunFolderTest, FreshLeavesTheOldRunAsItWasUntilTheFirstStepCanBeTaken) {
  (void)run(folder(), {{"train.max_steps", 2}});
  put(folder() / "notes.txt", "mine");
  const auto before = content_of(folder());
  toys::at_point = [](const char* point) {
    if (std::string_view(point) == "read") throw DataError({"source 1 of 1: /typo.txt does not exist", "a test", "repair it"});
  };
  // Before the first step (the trial of a budget reads a batch), and in it.
  EXPECT_THAT(refusal(folder(), {{"memory.budget", "90%"}}, true), HasSubstr("typo"));
  EXPECT_EQ(content_of(folder()), before);
  EXPECT_THAT(refusal(folder(), {{"precision.dtype", "fp32"}}, true), HasSubstr("typo"));
  EXPECT_EQ(content_of(folder()), before);
}

TEST_F(RunFolderTest, FreshRemovesTheOldRunWhenTheNewOneHasSavedAndNothingElse) {
  (void)run(folder(), {{"train.max_steps", 4}});
  const std::map<std::string, std::string> mine = {{"notes.txt", "a"},
                                                   {"snapshots/photo.jpg", "b"},
                                                   {"snapshots/step-00000099/photo.jpg", "c"},
                                                   {"snapshots/step-00000002/photo.jpg", "d"},
                                                   {"pictures/photo.jpg", "e"},
                                                   {".old-run/photo.jpg", "j"},
                                                   {".old-run/config.json", "k"},
                                                   {"events.out.tfevents.mine", "f"},
                                                   {".tmp-step-00000001-1", "g"},
                                                   {"config.json.tmp.1.1", "h"},
                                                   {"notes.txt.tmp." + std::to_string(::getpid()) + ".1", "i"}};
  for (const auto& [name, text] : mine) put(folder() / name, text);
  const stdfs::path staging = folder() / (".new-" + std::to_string(::getpid()) + "-7");
  stdfs::create_directories(staging);  // as a process leaves it that is killed between its last two removals
  const stdfs::path leftover = folder() / ("summary.json.tmp." + std::to_string(::getpid()) + ".1");
  put(leftover, "of a killed process");
  const RunOutcome again = run(folder(), {{"train.max_steps", 3}}, /*fresh=*/true);
  EXPECT_EQ(again.summary["steps"], 3);
  for (const auto& [name, text] : mine) EXPECT_EQ(text_of(folder() / name), text) << name;
  EXPECT_FALSE(stdfs::exists(leftover));
  EXPECT_FALSE(stdfs::exists(staging));
  EXPECT_FALSE(stdfs::exists(folder() / ".old-run-2"));
  EXPECT_THAT(snapshots_in(folder()),
              ElementsAre("photo.jpg", "step-00000001", "step-00000002", "step-00000002.2", "step-00000003", "step-00000099"));
  EXPECT_EQ(toys::log_of(folder(), "start").size(), 1U) << "the old log is gone";
}

TEST_F(RunFolderTest, AFreshStartThatDiesAnywhereLeavesOneOfTheTwoRunsWhole) {
  const RunOutcome old = run(folder(), {{"train.max_steps", 2}});
  const Json next = {{"train.max_steps", 2}, {"train.seed", 7}};
  const RunOutcome fresh = run(root_.path() / "other", next);
  const stdfs::path copy = root_.path() / "copy";
  int old_ones = 0;
  int new_ones = 0;
  for (std::int64_t k = 0; k < 400; ++k) {
    stdfs::remove_all(copy);
    stdfs::copy(folder(), copy, stdfs::copy_options::recursive);
    FaultFs fs(Fs::real(), {.fail_at = k, .keeps_failing = true});  // as if the process died at its k-th call
    try {
      (void)run(copy, next, true, &fs);
    } catch (const std::exception&) {
    }
    const bool ended = fs.calls() <= k;
    // The next process finds a run, and it is one of the two.
    bool is_old = false;
    try {
      is_old = run(copy, {{"train.max_steps", 2}}).summary["state_sha256"] == old.summary["state_sha256"];
    } catch (const ConfigError&) {  // the seed differs: it is the new one
    }
    if (!is_old) {
      EXPECT_EQ(run(copy, next).summary["state_sha256"], fresh.summary["state_sha256"]) << k;
    }
    if (is_old) {
      EXPECT_EQ(text_of(copy / "summary.json"), text_of(folder() / "summary.json")) << k << ": not the old one but one like it";
    }
    ++(is_old ? old_ones : new_ones);
    for (const std::string& name : Fs::real().list(copy)) EXPECT_FALSE(name.starts_with(".old-run")) << k;
    if (ended) break;
  }
  EXPECT_GT(old_ones, 5);
  EXPECT_GT(new_ones, 5);
}

// Who uses a run while --fresh replaces it and has not saved yet gets the old one.
TEST_F(RunFolderTest, ARunThatIsBeingReplacedCanStillBeUsed) {
  const RunOutcome old = run(folder(), {{"train.max_steps", 2}});
  toys::at_point = [&](const char* point) {
    if (std::string_view(point) != "loss") return;
    toys::at_point = nullptr;
    telemetry::Console console(telemetry::Console::Mode::quiet);
    const Loaded loaded = load_for_inference(toys::grouped_regression(), folder(), nullptr, Json::object(), console);
    EXPECT_THAT(loaded.which, HasSubstr("step 2 of "));
  };
  (void)run(folder(), {{"train.max_steps", 3}}, /*fresh=*/true);
  EXPECT_FALSE(toys::at_point);
}

// ---- what is the user's

TEST_F(RunFolderTest, AFolderWithFilesOfTheUsersUnderOurNamesIsRefusedAndStaysAsItIs) {
  for (const char* name : {"config.json", "history.csv", "log.jsonl", "summary.json", "plan.json", "run.json",
                           "snapshots/photo.jpg", "pictures/photo.jpg", "history.csv.old", "lock"}) {
    for (const bool fresh : {false, true}) {
      stdfs::remove_all(folder());
      put(folder() / name, R"({"toy": {"noise": 0.2}})");
      const auto before = content_of(folder());
      const std::string first = std::string(name).substr(0, std::string(name).find('/'));
      EXPECT_THAT(refusal(folder(), {}, fresh),
                  HasSubstr("holds files that a run would write, but no run of Millrace made them: " + first));
      EXPECT_EQ(content_of(folder()), before) << name;
      EXPECT_EQ(text_of(folder() / name), R"({"toy": {"noise": 0.2}})");
    }
  }
}

TEST_F(RunFolderTest, LinksAndPipesInThePlaceOfARunsFilesAreRefused) {
  (void)run(folder(), {{"train.max_steps", 2}});
  const stdfs::path other = root_.path() / "other";
  (void)run(other, {{"train.max_steps", 6}});
  stdfs::remove_all(folder() / "snapshots");
  stdfs::create_directory_symlink(other / "snapshots", folder() / "snapshots");
  EXPECT_THAT(refusal(folder(), {{"train.max_steps", 3}}), HasSubstr("snapshots is not a folder but a link"));
  EXPECT_EQ(snapshots_in(other).size(), 6U);
  stdfs::remove(folder() / "snapshots");
  for (const char* name : {"log.jsonl", "summary.json", "lock"}) {
    stdfs::remove(folder() / name);
    ASSERT_EQ(::mkfifo((folder() / name).c_str(), 0600), 0);
    EXPECT_THAT(refusal(folder(), {}), HasSubstr(std::string(name) + " is not a regular file")) << "and does not hang";
    stdfs::remove(folder() / name);
  }
}

TEST_F(RunFolderTest, ASecondHistoryThatIsKeptIsTheRunsOwn) {
  (void)run(folder(), {{"train.max_steps", 2}, {"toy.rows", 8}});
  put(folder() / "history.csv.old", "epoch,first\n1,2\n");
  put(folder() / "history.csv", "epoch,second\n1,2\n");
  put(folder() / "history.csv.old.7", "mine");
  (void)run(folder(), {{"train.max_steps", 4}, {"toy.rows", 8}});
  EXPECT_EQ(text_of(folder() / "history.csv.old.2"), "epoch,second\n1,2\n");
  const Json record = Json::parse(text_of(folder() / "run.json"));
  EXPECT_THAT(record.at("files").get<std::vector<std::string>>(), testing::Contains("history.csv.old.2"));
  (void)run(folder(), {{"train.max_steps", 2}, {"toy.rows", 8}}, /*fresh=*/true);
  EXPECT_FALSE(stdfs::exists(folder() / "history.csv.old.2")) << "--fresh replaces the whole old run";
  EXPECT_EQ(text_of(folder() / "history.csv.old.7"), "mine");
}

TEST_F(RunFolderTest, ARunWithoutARecordIsKnownByItsConfig) {
  (void)run(folder(), {{"train.max_steps", 2}});
  stdfs::remove(folder() / "run.json");
  EXPECT_EQ(run(folder(), {{"train.max_steps", 3}}).summary["steps"], 3);
  EXPECT_TRUE(stdfs::exists(folder() / "run.json"));
}

TEST_F(RunFolderTest, ARunOfAnotherRecipeIsNamed) {
  (void)run(folder(), {{"train.max_steps", 2}});
  try {
    (void)toys::run(toys::adversarial(), folder(), {});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr(" is a run of recipe grouped_regression, not of adversarial"));
  }
}

TEST_F(RunFolderTest, AConfigNestedWithoutEndIsRefused) {
  put(folder() / "config.json", R"({"values": )" + std::string(100'000, '['));
  EXPECT_THROW((void)read_config(Fs::real(), folder()), SnapshotError);
}

// What run.json names is only touched where it is below the run folder.
TEST_F(RunFolderTest, ARecordOfAnotherHandIsNoRecord) {
  const stdfs::path precious = root_.path() / "precious";
  put(precious, "mine");
  for (const std::string& name : {std::string("../precious"), precious.string(), std::string("a/../../precious")}) {
    stdfs::remove_all(folder());
    const Json record = {
        {"format", 1}, {"recipe", "grouped_regression"}, {"files", {name}}, {"old_run", ".old-run"}, {"replacement", "complete"}};
    put(folder() / "run.json", record.dump());
    put(folder() / ".old-run" / "run.json", record.dump());
    EXPECT_THAT(refusal(folder(), {}), HasSubstr("no run of Millrace made them: run.json"));
    EXPECT_EQ(text_of(precious), "mine");
  }
}

TEST_F(RunFolderTest, RunsThatBeginInTheSameSecondGetFoldersOfTheirOwn) {
  const RunDestination place{root_.path() / "runs" / "2026-01-01-000000", true};
  const RunFolder first(Fs::real(), place, "toy", false);
  const RunFolder second(Fs::real(), place, "toy", false);
  const RunFolder third(Fs::real(), place, "toy", false);
  EXPECT_EQ(second.path().filename(), "2026-01-01-000000-2");
  EXPECT_EQ(third.path().filename(), "2026-01-01-000000-3");
}

TEST_F(RunFolderTest, ARunThatNeverBeganLeavesNoFolder) {
  EXPECT_THAT(refusal(folder(), {{"train.resume", (root_.path() / "nothing").string()}}),
              HasSubstr("there is no valid snapshot"));
  EXPECT_FALSE(stdfs::exists(folder()));
}

TEST_F(RunFolderTest, AFolderMovedWhileTheRunGoesOnIsMadeAnew) {
  int seen = 0;
  toys::at_point = [&](const char* point) {
    if (std::string_view(point) == "measure" && ++seen == 1) stdfs::rename(folder(), root_.path() / "moved");
  };
  const RunOutcome outcome = run(folder(), {{"train.epochs", 3}});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_TRUE(stdfs::exists(root_.path() / "moved" / "log.jsonl"));
  EXPECT_EQ(read_config(Fs::real(), folder()).values["train"]["epochs"], 3);
  toys::at_point = nullptr;
  EXPECT_EQ(run(folder(), {{"train.epochs", 3}}).summary["state_sha256"], outcome.summary["state_sha256"]);
}

// ---- when it is finished

TEST_F(RunFolderTest, ARunStoppedInItsLastValidationStillHasItToDo) {
  const Json length = {{"train.max_steps", 8}, {"train.validate_every", 8}};
  const RunOutcome straight = run(root_.path() / "straight", length);
  for (const bool in_the_loop : {true, false}) {
    const Json values = combined(length, in_the_loop ? Json::object() : Json{{"train.validate_every", 100}});
    const RunOutcome whole = in_the_loop ? straight : run(root_.path() / "straight2", values);
    stdfs::remove_all(folder());
    toys::at_point = [](const char* point) {
      if (std::string_view(point) == "measure") std::raise(SIGTERM);
    };
    EXPECT_EQ(run(folder(), values).exit_code, 143);
    EXPECT_EQ(state_of_run(summary_of(folder()), 8), RunState::stopped);
    toys::at_point = nullptr;
    reset_pending_signal_for_test();
    const RunOutcome resumed = run(folder(), values);
    EXPECT_EQ(lasting(resumed.summary), lasting(whole.summary));
    EXPECT_EQ(state_of_run(summary_of(folder()), 8), RunState::finished);
    EXPECT_EQ(lasting(run(folder(), values).summary), lasting(whole.summary)) << "already complete";
    EXPECT_EQ(snapshot::digest(*snapshot::load_newest(Fs::real(), folder(), nullptr)), whole.summary["state_sha256"]);
  }
}

TEST_F(RunFolderTest, ARunThatFailedInItsLastValidationFailsAgainUntilThatIsMended) {
  const Json values = {{"train.max_steps", 8}, {"train.validate_every", 100}};
  const RunOutcome straight = run("", values);
  toys::at_point = [](const char* point) {
    if (std::string_view(point) == "measure") throw DataError({"sample 3 can't be read", "a test", "repair it"});
  };
  for (int again = 0; again < 2; ++again) {
    EXPECT_THAT(refusal(folder(), values), HasSubstr("sample 3"));
    EXPECT_EQ(state_of_run(summary_of(folder()), 8), RunState::failed);
  }
  toys::at_point = nullptr;
  EXPECT_EQ(lasting(run(folder(), values).summary), lasting(straight.summary));
  EXPECT_EQ(state_of_run(summary_of(folder()), 8), RunState::finished);
}

TEST_F(RunFolderTest, ASummaryThatIsLostOrOfAShorterRunIsMadeAnewAndTrue) {
  const Json values = {{"train.max_steps", 6}, {"log.every", 4}};
  const RunOutcome straight = run(folder(), values);
  stdfs::remove(folder() / "summary.json");
  EXPECT_EQ(lasting(run(folder(), values).summary), lasting(straight.summary)) << "the loss is the last that was logged";
  EXPECT_EQ(state_of_run(summary_of(folder()), 7), RunState::stopped) << "a killed extension of a finished run";
}

// The loss of a log line is a mean over the steps since the last one: also over a stop between the two.
TEST_F(RunFolderTest, TheSummaryOfAnInterruptedRunIsThatOfAnUndisturbedOne) {
  const Json values = {{"train.max_steps", 11}, {"log.every", 4}, {"snapshot.every_steps", 3}};
  const RunOutcome straight = run("", values);
  for (const int when : {1, 4, 6, 9, 10}) {
    stdfs::remove_all(folder());
    int seen = 0;
    toys::at_point = [&](const char* point) {
      if (std::string_view(point) == "loss" && ++seen == when) std::raise(SIGTERM);
    };
    EXPECT_EQ(run(folder(), values).exit_code, 143);
    toys::at_point = nullptr;
    reset_pending_signal_for_test();
    EXPECT_EQ(lasting(run(folder(), values).summary), lasting(straight.summary)) << when;
  }
}

TEST_F(RunFolderTest, AMetricThatIsNotANumberIsNeverBest) {
  const RunOutcome outcome = run(folder(), {{"train.max_steps", 6}, {"train.validate_every", 2}, {"toy.nan_until", 4}});
  const Json metric = outcome.summary["metrics"]["val_loss"];
  EXPECT_EQ(metric["best_step"], 6) << metric;
  const RunOutcome never = run("", {{"train.max_steps", 6}, {"train.validate_every", 2}, {"toy.nan_until", 100}});
  EXPECT_TRUE(never.summary["metrics"]["val_loss"]["best"].is_null());
  EXPECT_EQ(never.summary["metrics"]["val_loss"]["last"], "nan");
}

}  // namespace
}  // namespace millrace
