#include "millrace/snapshot/keeper.h"

#include <gmock/gmock.h>

#include <thread>

#include "millrace/snapshot/detail/test_run.h"

namespace millrace::snapshot {
namespace {

namespace stdfs = std::filesystem;
using detail::expect_equal;
using detail::small;
using testing::ElementsAre;
using testing::HasSubstr;

class KeeperTest : public detail::RunTest {};

TEST_F(KeeperTest, RetentionKeepsTheLastAndTheBest) {
  for (const std::int64_t step : {1, 2, 3, 10, 9, 100}) save_real(small(step));
  stdfs::create_directories(run_ / "snapshots" / ".tmp-step-00000050-1");
  put(run_ / "snapshots" / "notes", "mine");
  retain_real(2, {2});
  EXPECT_THAT(names(), ElementsAre("notes", "step-00000002", "step-00000010", "step-00000100"));
  retain_real(0);
  EXPECT_THAT(names(), ElementsAre("notes", "step-00000100")) << "the newest always stays";
  EXPECT_THAT(warnings_, ElementsAre());
}

// Guards against an earlier mistake: damaged and foreign folders with high numbers made retention remove the only whole
// snapshots.
TEST_F(KeeperTest, WhatDoesNotLoadIsNeitherCountedNorRemoved) {
  for (const std::int64_t step : {1, 2, 3, 8, 9}) save_real(small(step));
  put(run_ / "snapshots" / "step-00000008" / "manifest.json", "x");
  flip_last_byte(run_ / "snapshots" / "step-00000009" / "model.safetensors");
  stdfs::create_directories(run_ / "snapshots" / "step-00000099");
  put(run_ / "snapshots" / "step-00000099" / "photo.jpg", "mine");
  put(run_ / "snapshots" / "step-00000002" / "photo.jpg", "mine");
  stdfs::create_directory_symlink("step-00000500", run_ / "snapshots" / "step-00000500");
  Keeper keeper(Fs::real(), run_);
  keeper.wrote(run_ / "snapshots" / "step-00000003");
  const auto tell = [this](const std::string& line) { warnings_.push_back(line); };
  for (int again = 0; again < 2; ++again) keeper.retain({.keep_last = 1}, tell);
  EXPECT_THAT(names(),
              ElementsAre("step-00000002", "step-00000003", "step-00000008", "step-00000009", "step-00000099", "step-00000500"));
  EXPECT_EQ(text_of(run_ / "snapshots" / "step-00000002" / "photo.jpg"), "mine");
  EXPECT_THAT(warnings_, testing::UnorderedElementsAre(
                             HasSubstr("step-00000500 is damaged, or holds"), HasSubstr("step-00000099 is damaged, or holds"),
                             HasSubstr("step-00000009 is damaged; it does not count as a snapshot"),
                             HasSubstr("step-00000008 is damaged, or holds"), HasSubstr("step-00000002 is damaged, or holds")))
      << "each once";
}

TEST_F(KeeperTest, TheOneJustWrittenAndTheOneTheProcessBeganFromStay) {
  for (const std::int64_t step : {1, 2, 3, 7, 8}) save_real(small(step));  // a user has copied 7 and 8 there
  Keeper keeper(Fs::real(), run_, run_ / "snapshots" / "step-00000001");
  keeper.wrote(run_ / "snapshots" / "step-00000003");
  keeper.retain({.keep_last = 1}, nullptr);
  EXPECT_THAT(names(), ElementsAre("step-00000001", "step-00000003", "step-00000008"));
}

TEST_F(KeeperTest, TheOneTheProcessBeganFromIsNamedWhenItIsDamagedLater) {
  for (const std::int64_t step : {1, 2}) save_real(small(step));
  const auto tell = [this](const std::string& line) { warnings_.push_back(line); };
  Keeper keeper(Fs::real(), run_, run_ / "snapshots" / "step-00000002");
  put(run_ / "snapshots" / "step-00000002" / "manifest.json", "x");
  for (int again = 0; again < 2; ++again) keeper.retain({.keep_last = 1}, tell);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("step-00000002 is damaged"))) << "once";
  EXPECT_THAT(names(), ElementsAre("step-00000001", "step-00000002"));
}

TEST_F(KeeperTest, WhatWasPassedOverOnTheWayToTheBeginningIsNotNamedAgain) {
  for (const std::int64_t step : {1, 2, 4}) save_real(small(step));
  for (const char* name : {"step-00000001", "step-00000004"}) put(run_ / "snapshots" / name / "manifest.json", "x");
  const auto tell = [this](const std::string& line) { warnings_.push_back(line); };
  Keeper keeper(Fs::real(), run_, run_ / "snapshots" / "step-00000002");
  keeper.retain({.keep_last = 1}, tell);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("step-00000001 is damaged")));
  EXPECT_THAT(names(), ElementsAre("step-00000001", "step-00000002", "step-00000004"));
}

TEST_F(KeeperTest, LeftoversGoOnlyWhenTheyAreOursAndTheirProcessIsKnown) {
  save_real(small(1));
  for (const char* name : {".tmp-step-00000002-1", ".tmp-step-00000002-77", ".tmp-notes-1", ".tmp-step-00000003-1"})
    stdfs::create_directories(run_ / "snapshots" / name);
  put(run_ / "snapshots" / ".tmp-step-00000002-1" / "model.safetensors", "half");
  put(run_ / "snapshots" / ".tmp-step-00000003-1" / "photo.jpg", "mine");
  put(run_ / "snapshots" / ".tmp-step-00000004-1", "mine");
  retain_real(1);  // as if process 1 had worked here
  EXPECT_THAT(names(), ElementsAre(".tmp-notes-1", ".tmp-step-00000002-77", ".tmp-step-00000003-1", ".tmp-step-00000004-1",
                                   "step-00000001"));
}

TEST_F(KeeperTest, SavingAndRemovingInTwoThreadsDoNotDisturbEachOther) {
  std::thread saver([this] {
    for (const std::int64_t step : {1, 2, 2, 3, 3, 3, 4, 4, 4, 4}) {
      for (int again = 0; again < 5; ++again) save_real(small(step));
    }
  });
  for (int i = 0; i < 200; ++i) retain_real(1);
  saver.join();
  retain_real(1);
  EXPECT_THAT(warnings_, ElementsAre());
  EXPECT_THAT(names(), ElementsAre("step-00000004"));
  expect_equal(small(4), *newest());
}

TEST_F(KeeperTest, RetentionSurvivesAnyFailure) {
  const auto prepare = [&] {
    stdfs::remove_all(run_ / "snapshots");
    for (const std::int64_t step : {1, 2, 3}) save_real(small(step));
    stdfs::create_directories(run_ / "snapshots" / ".tmp-step-00000050-1");
  };
  prepare();
  const std::int64_t calls = count_calls([&](Fs& fs) { retain_in(fs, {.keep_last = 1}); });
  ASSERT_GT(calls, 5);
  for (std::int64_t k = 0; k < calls; ++k) {
    prepare();
    FaultFs fs(Fs::real(), {.fail_at = k});
    warnings_.clear();
    retain_in(fs, {.keep_last = 1});
    EXPECT_THAT(warnings_, testing::Each(testing::AnyOf(HasSubstr("can't remove an old snapshot: "), HasSubstr("is damaged"))))
        << k;
    passed_.clear();
    expect_equal(small(3), *newest());
    for (const Found& found : list(Fs::real(), run_)) EXPECT_EQ(refusal(found.path), "accepted");
    retain_real(1);
    EXPECT_THAT(names(), ElementsAre("step-00000003"));
  }
}

}  // namespace
}  // namespace millrace::snapshot
