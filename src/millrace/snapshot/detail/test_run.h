// A run folder with snapshots, for the tests of this folder.
#pragma once

#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/snapshot/detail/test_content.h"
#include "millrace/snapshot/keeper.h"
#include "tests/support/fault_fs.h"
#include "tests/support/refusal.h"

namespace millrace::snapshot::detail {

namespace stdfs = std::filesystem;

// Makes a run folder for a test, and has the operations that several tests need.
class RunTest : public testing::Test {
 protected:
  RunTest() : run_(scratch() / ("millrace-snapshot-" + std::to_string(::getpid()))) {
    stdfs::remove_all(run_);
    stdfs::create_directories(run_);
  }
  ~RunTest() override { stdfs::remove_all(run_); }

  stdfs::path save_real(const Content& content) { return save(Fs::real(), run_, content); }
  std::optional<Content> newest() {
    return load_newest(Fs::real(), run_, [this](const stdfs::path& path, const std::string& reason) {
      passed_.push_back(path.filename().string() + ": " + reason);
    });
  }
  void retain_real(std::int64_t keep_last, const std::vector<std::int64_t>& keep_steps = {}) {
    retain_in(Fs::real(), {keep_last, 0, keep_steps});
  }
  // Acts like a process that starts in the run and saves nothing.
  void retain_in(Fs& fs, const Keeper::Retention& retention) {
    const auto report = [this](const std::string& line) { warnings_.push_back(line); };
    Keeper keeper(fs, run_);
    keeper.clear_leftovers({1}, report);
    keeper.retain(retention, report);
  }
  [[nodiscard]] std::vector<std::string> names() const {
    return stdfs::exists(run_ / "snapshots") ? Fs::real().list(run_ / "snapshots") : std::vector<std::string>{};
  }
  static std::string text_of(const stdfs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void put(const stdfs::path& path, const std::string& text) {
    stdfs::remove(path);
    std::ofstream(path, std::ios::binary) << text;
  }
  static void flip_last_byte(const stdfs::path& path) {
    std::string text = text_of(path);
    text.back() = static_cast<char>(text.back() ^ 4);
    put(path, text);
  }
  static std::string refusal(const stdfs::path& snapshot) {
    const Message message = refusal_message<SnapshotError>([&] { static_cast<void>(load(Fs::real(), snapshot)); });
    EXPECT_EQ(message.where.empty() || message.next.empty(), message.what == "accepted");
    return message.what;
  }
  std::string save_refusal(const Content& content) {
    return refusal_message<SnapshotError>([&] { save_real(content); }).what;
  }

  // Returns the number of file system calls that `work` makes.
  static std::int64_t count_calls(const std::function<void(Fs&)>& work) {
    FaultFs fs(Fs::real());
    work(fs);
    return fs.calls();
  }

  stdfs::path run_;
  std::vector<std::string> passed_;
  std::vector<std::string> warnings_;
};

}  // namespace millrace::snapshot::detail
