// Snapshots of a run whose disk fails, fills up, or is slow: training continues, and the run ends as on a healthy disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>

#include "millrace/base/error.h"
#include "millrace/snapshot/snapshot.h"
#include "tests/support/fault_fs.h"
#include "toys.h"

namespace millrace {
namespace {

using testing::HasSubstr;

const Json kSaving = {{"train.epochs", 0},         {"train.max_steps", 12},      {"train.validate_every", 6},
                      {"snapshot.every_steps", 3}, {"snapshot.every_epochs", 0}, {"snapshot.keep_last", 2},
                      {"log.tensorboard", false},  {"data.workers", 0},          {"log.images", false}};

Json saving_with(const Json& more) {
  Json config = kSaving;
  config.update(more);
  return config;
}

std::map<std::string, std::string> snapshot_files(const std::filesystem::path& folder) {
  std::map<std::string, std::string> all;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder / "snapshots")) {
    const bool names_its_folder = entry.path().filename() == "state.json" || entry.path().filename() == "manifest.json";
    if (entry.is_regular_file() && !names_its_folder)
      all[entry.path().lexically_relative(folder).string()] = Fs::real().read_file(entry.path());
  }
  return all;
}

// The state of a run that nothing disturbed.
const std::string& straight_hash() {
  static const std::string hash = toys::run(toys::grouped_regression(), "", kSaving).summary["state_sha256"].get<std::string>();
  return hash;
}

// What is on disk is whole, and the same command brings the run to the same end.
void expect_goes_on(const std::filesystem::path& folder, const Json& config, const std::string& what) {
  std::string damaged;
  if (std::filesystem::exists(folder)) {
    static_cast<void>(snapshot::load_newest(
        Fs::real(), folder, [&](const auto& path, const std::string& why) { damaged += path.string() + " " + why; }));
  }
  EXPECT_EQ(damaged, "") << what;
  const RunOutcome again = toys::run(toys::grouped_regression(), folder, config);
  EXPECT_EQ(again.summary["state_sha256"], straight_hash()) << what;
  EXPECT_EQ(snapshot::list(Fs::real(), folder).back().step, 12) << what;
}

TEST(Save, InTheBackgroundWritesTheBytesOfABlockingSave) {
  const toys::TemporaryFolder on;
  const toys::TemporaryFolder off;
  const Json config = saving_with({{"snapshot.keep_last", 100}, {"snapshot.every_steps", 1}});
  Json plain = config;
  plain["train.off"] = {"async_snapshot"};
  (void)toys::run(toys::grouped_regression(), on.path(), config);
  (void)toys::run(toys::grouped_regression(), off.path(), plain);
  const auto expected = snapshot_files(off.path());
  EXPECT_EQ(expected.size(), 12U * 2);  // model and optimizer of each
  EXPECT_EQ(snapshot_files(on.path()), expected);
}

TEST(Save, TheLogTellsHowLongTheLoopWaitedAndHowLongItWasWritten) {
  const toys::TemporaryFolder folder;
  const RunOutcome run = toys::run(toys::grouped_regression(), folder.path(), kSaving);
  const auto saved = toys::log_of(folder.path(), "snapshot");
  ASSERT_EQ(saved.size(), 4U);
  EXPECT_EQ(saved.back()["step"], 12);
  for (const Json& line : saved) {
    EXPECT_GT(line["blocked_ms"].get<double>(), 0.0);
    EXPECT_GT(line["write_ms"].get<double>(), 0.0);
  }
  EXPECT_EQ(run.summary["snapshots"]["saved"], 4);
  EXPECT_EQ(run.summary["snapshots"]["failed"], 0);
}

// Holds each save of a step back until the training is `lag` steps further, and a while longer for it to go too far.
class HeldBack final : public FaultFs {
 public:
  HeldBack(const std::atomic<std::int64_t>& begun, std::int64_t lag) : FaultFs(Fs::real()), begun_(begun), lag_(lag) {}
  void sync_directory(const std::filesystem::path& path) override {
    const std::string name = path.filename().string();
    const std::string start = ".tmp-step-";
    if (const std::int64_t step = name.starts_with(start) ? std::stoll(name.substr(start.size(), 8)) : 0; step > 0 && step < 12) {
      for (int i = 0; i < 20'000 && begun_ < step + lag_; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ahead_.push_back(begun_ - step);
    }
    FaultFs::sync_directory(path);
  }
  [[nodiscard]] const std::vector<std::int64_t>& ahead() const { return ahead_; }

 private:
  const std::atomic<std::int64_t>& begun_;
  std::int64_t lag_;
  std::vector<std::int64_t> ahead_;
};

TEST(Save, TrainingGoesOnBesideItForSoManySteps) {
  for (const std::int64_t lag : {0, 1, 2}) {
    const toys::TemporaryFolder folder;
    std::atomic<std::int64_t> begun{0};
    toys::at_point = [&](const char* point) { begun += std::string_view(point) == "loss" ? 1 : 0; };
    HeldBack fs(begun, lag);
    const RunOutcome run = toys::run(toys::grouped_regression(), folder.path(),
                                     saving_with({{"snapshot.max_lag", lag}, {"train.validate_every", 100}}), false, &fs);
    toys::at_point = nullptr;
    EXPECT_THAT(fs.ahead(), testing::ElementsAre(lag, lag, lag));
    EXPECT_EQ(run.summary["state_sha256"],
              toys::run(toys::grouped_regression(), "", saving_with({{"train.validate_every", 100}})).summary["state_sha256"]);
    EXPECT_GT(run.summary["snapshots"]["lag_ms"].get<double>(), 0.0);
    EXPECT_GT(run.summary["snapshots"]["lag_share"].get<double>(), 0.0);
    EXPECT_THAT(run.summary["snapshots"]["advice"].get<std::string>(), testing::StartsWith("waited for snapshots "));
  }
}

class FailingSave : public testing::TestWithParam<bool> {  // in the background
 protected:
  static Json config() { return GetParam() ? kSaving : saving_with({{"train.off", {"async_snapshot"}}}); }
  // A run's digest, or what it ended with; then the same command again, on a disk that works.
  static std::string outcome(FaultFs& fs, const std::string& fault) {
    const toys::TemporaryFolder folder;
    std::string how;
    try {
      how = toys::run(toys::grouped_regression(), folder.path(), config(), false, &fs).summary["state_sha256"].get<std::string>();
      EXPECT_EQ(how, straight_hash()) << fault;
    } catch (const Error& error) {
      how = error.what();
    } catch (const FsError& error) {
      how = error.what();
    }
    expect_goes_on(folder.path(), config(), fault + ": " + how);
    return how;
  }
};

// Each call of the file system in turn, alone: no abort, and the previous snapshot loads.
TEST_P(FailingSave, WhicheverCallFailsTheRunEndsAsIfItHadNot) {
  std::vector<std::string> calls;
  {
    const toys::TemporaryFolder folder;
    FaultFs fs(Fs::real());
    (void)toys::run(toys::grouped_regression(), folder.path(), config(), false, &fs);
    calls = fs.log();
  }
  ASSERT_GT(calls.size(), 100U);
  std::size_t went_on = 0;
  for (std::size_t k = 0; k < calls.size(); ++k) {
    FaultFs fs(Fs::real(),
               {.fail_at = static_cast<std::int64_t>(k), .error_number = k % 2 == 0 ? EIO : ENOSPC, .tears_write = true});
    went_on += outcome(fs, "call " + std::to_string(k) + ", " + calls[k]) == straight_hash() ? 1 : 0;
  }
  EXPECT_GT(went_on, calls.size() * 8 / 10) << "one failure is no reason to stop, but at the start and at the very end";
}

TEST_P(FailingSave, OnAFullDiskTrainingGoesOnAndNothingIsTorn) {
  // All that a run writes, logs too.
  std::uint64_t needed = 0;
  {
    const toys::TemporaryFolder folder;
    (void)toys::run(toys::grouped_regression(), folder.path(), saving_with({{"snapshot.keep_last", 100}}));
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path()))
      needed += entry.is_regular_file() ? entry.file_size() : 0;
  }
  constexpr std::uint64_t kSizes = 64;
  // A save wants some room to spare before it begins.
  const std::uint64_t most = needed * 11 / 10 + (std::uint64_t{128} << 10U);
  int finished = 0;
  for (std::uint64_t i = 0; i < kSizes; ++i) {
    const std::uint64_t capacity = most * i / (kSizes - 1);
    FaultFs fs(Fs::real(), {.capacity = capacity});
    finished += outcome(fs, std::to_string(capacity) + " bytes") == straight_hash() ? 1 : 0;
  }
  EXPECT_GT(finished, 0);
}

INSTANTIATE_TEST_SUITE_P(Where, FailingSave, testing::Bool(),
                         [](const auto& param_info) { return param_info.param ? "background" : "loop"; });

// Every file of a snapshot of these steps fails.
class BrokenAt final : public FaultFs {
 public:
  BrokenAt(std::int64_t step) : FaultFs(Fs::real()), name_("step-0000000" + std::to_string(step)) {}
  std::unique_ptr<WritableFile> create(const std::filesystem::path& path) override {
    if (path.string().find(name_) != std::string::npos) throw FsError("open", path, EIO);
    return FaultFs::create(path);
  }

 private:
  std::string name_;
};

TEST(Save, AFailureIsAWarningAndThePreviousSnapshotStays) {
  const toys::TemporaryFolder folder;
  BrokenAt fs(6);
  const RunOutcome run =
      toys::run(toys::grouped_regression(), folder.path(), saving_with({{"snapshot.keep_last", 5}}), false, &fs);
  EXPECT_EQ(run.summary["state_sha256"], straight_hash());
  EXPECT_EQ(run.summary["snapshots"]["failed"], 1);
  const auto warnings = toys::log_of(folder.path(), "warning");
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0]["text"].get<std::string>(),
              HasSubstr("can't save the snapshot of step 6: can't write model.safetensors"));
  std::vector<std::int64_t> steps;
  for (const auto& found : snapshot::list(Fs::real(), folder.path())) steps.push_back(found.step);
  EXPECT_THAT(steps, testing::ElementsAre(3, 9, 12));
}

TEST(Save, AFailureStopsTheRunWhereThatIsWished) {
  for (const char* const off : {"", "async_snapshot"}) {
    const toys::TemporaryFolder folder;
    BrokenAt fs(6);
    Json config = saving_with({{"snapshot.on_error", "stop"}, {"train.max_steps", 9}});
    if (*off != '\0') config["train.off"] = {off};
    EXPECT_THROW((void)toys::run(toys::grouped_regression(), folder.path(), config, false, &fs), SnapshotError);
    config["train.max_steps"] = 12;
    expect_goes_on(folder.path(), config, "stopped");
  }
}

TEST(Save, KeepsTheLastTheBestAndEveryNth) {
  const toys::TemporaryFolder folder;
  const RunOutcome run = toys::run(toys::grouped_regression(), folder.path(),
                                   saving_with({{"snapshot.every_steps", 1},
                                                {"snapshot.keep_last", 1},
                                                {"snapshot.keep_every", 5},
                                                {"train.validate_every", 1},
                                                {"snapshot.best_metric", "absolute_error"},
                                                {"snapshot.best_is", "highest"}}));
  const auto& metric = run.summary["metrics"]["absolute_error"];
  EXPECT_GE(metric["best"].get<double>(), metric["last"].get<double>()) << "the highest";
  std::vector<std::int64_t> steps;
  for (const auto& found : snapshot::list(Fs::real(), folder.path())) steps.push_back(found.step);
  std::vector<std::int64_t> expected = {metric["best_step"].get<std::int64_t>(), 5, 10, 12};
  std::sort(expected.begin(), expected.end());
  expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
  EXPECT_EQ(steps, expected);
}

TEST(Save, AnUnknownBestMetricIsNamedWithThoseThereAre) {
  const toys::TemporaryFolder folder;
  try {
    (void)toys::run(toys::grouped_regression(), folder.path(), saving_with({{"snapshot.best_metric", "accuracy"}}));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("validation gives no metric \"accuracy\""));
    EXPECT_THAT(error.what(), HasSubstr("it gives val_loss, absolute_error"));
  }
}

}  // namespace
}  // namespace millrace
