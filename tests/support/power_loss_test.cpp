#include "tests/support/power_loss.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <set>

namespace millrace {
namespace {

namespace stdfs = std::filesystem;
using testing::Contains;
using testing::Not;
using testing::UnorderedElementsAre;

class PowerLoss : public testing::Test {
 protected:
  PowerLoss() : root_(stdfs::temp_directory_path() / ("millrace-power-" + std::to_string(::getpid()))) {
    stdfs::remove_all(root_);
    stdfs::create_directories(root_ / "a");
    const auto file = Fs::real().create(root_ / "a" / "old");
    file->write(bytes_of("old"));
  }
  ~PowerLoss() override { stdfs::remove_all(root_); }
  static std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }
  // Each state after the last change as one line: "a/ a/old=old".
  static std::set<std::string> last_states(const PowerLossFs& fs) {
    std::set<std::string> states;
    fs.for_each_state(fs.changes(), 10, [&](const PowerLossFs::State& state) {
      std::string text;
      for (const auto& [name, bytes] : state.entries) text += (text.empty() ? "" : " ") + name + (bytes ? "=" + *bytes : "/");
      states.insert(text);
    });
    return states;
  }

  stdfs::path root_;
};

TEST_F(PowerLoss, WhatWasThereBeforeIsSafe) {
  const PowerLossFs fs(Fs::real(), root_);
  EXPECT_THAT(last_states(fs), UnorderedElementsAre("a/ a/old=old"));
}

TEST_F(PowerLoss, BytesAndEntriesAreLostEachForItself) {
  PowerLossFs fs(Fs::real(), root_);
  const auto file = fs.create(root_ / "a" / "new");
  file->write(bytes_of("x"));
  EXPECT_THAT(last_states(fs), UnorderedElementsAre("a/ a/old=old", "a/ a/new= a/old=old", "a/ a/new=x a/old=old"));
  file->sync();
  EXPECT_THAT(last_states(fs), UnorderedElementsAre("a/ a/old=old", "a/ a/new=x a/old=old")) << "the entry is not safe yet";
  fs.sync_directory(root_ / "a");
  EXPECT_THAT(last_states(fs), UnorderedElementsAre("a/ a/new=x a/old=old"));
}

TEST_F(PowerLoss, TheLastWriteIsTornAtSectors) {
  PowerLossFs fs(Fs::real(), root_);
  const auto file = fs.append(root_ / "a" / "old");
  const std::string sectors(1100, 'y');
  file->write(bytes_of(sectors));
  EXPECT_THAT(last_states(fs), UnorderedElementsAre("a/ a/old=old", "a/ a/old=old" + std::string(512, 'y'),
                                                    "a/ a/old=old" + std::string(1024, 'y'), "a/ a/old=old" + sectors));
}

TEST_F(PowerLoss, MovesAndRemovalsAreLostUntilTheFolderIsSynced) {
  PowerLossFs fs(Fs::real(), root_);
  fs.create_directories(root_ / "b" / "c");
  fs.sync_directory(root_);
  EXPECT_THAT(last_states(fs), UnorderedElementsAre("a/ a/old=old b/", "a/ a/old=old b/ b/c/"));
  fs.sync_directory(root_ / "b");
  fs.rename(root_ / "a", root_ / "d");
  EXPECT_THAT(last_states(fs), UnorderedElementsAre("a/ a/old=old b/ b/c/", "b/ b/c/ d/ d/old=old"));
  fs.remove_all(root_ / "d");
  const auto states = last_states(fs);
  EXPECT_THAT(states, Contains("b/ b/c/"));
  EXPECT_THAT(states, Contains("a/ a/old=old b/ b/c/"));
  EXPECT_THAT(states, Contains("a/ b/ b/c/")) << "the removal inside is kept, the move is not";
  EXPECT_THAT(states, Contains("b/ b/c/ d/"));
  fs.sync_directory(root_);
  EXPECT_THAT(last_states(fs), UnorderedElementsAre("b/ b/c/"));
  EXPECT_FALSE(stdfs::exists(root_ / "d")) << "the real folder follows";
}

TEST_F(PowerLoss, StatesOfAllMomentsCanBeMade) {
  PowerLossFs fs(Fs::real(), root_);
  write_atomically(fs, root_ / "a" / "old", "new text");
  const stdfs::path copy = root_.string() + "-copy";
  std::set<std::string> contents;
  fs.for_each_state(0, 10, [&](const PowerLossFs::State& state) {
    stdfs::remove_all(copy);
    stdfs::create_directories(copy);
    state.make(copy);
    contents.insert(Fs::real().read_file(copy / "a" / "old"));
  });
  stdfs::remove_all(copy);
  EXPECT_THAT(contents, UnorderedElementsAre("old", "new text")) << "whole or not at all, whenever the power goes";
}

// The same writes without a sync are detected.
TEST_F(PowerLoss, AWriteWithoutSyncIsFound) {
  PowerLossFs fs(Fs::real(), root_);
  fs.create(root_ / "a" / "temporary")->write(bytes_of("new text"));
  fs.rename(root_ / "a" / "temporary", root_ / "a" / "old");
  fs.sync_directory(root_ / "a");
  EXPECT_THAT(last_states(fs), UnorderedElementsAre("a/ a/old=", "a/ a/old=new text"));
}

}  // namespace
}  // namespace millrace
