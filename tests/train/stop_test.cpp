// Signals: finish the step, save, exit with 128 + n; the same command resumes exactly.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "millrace/base/error.h"
#include "millrace/system/signals.h"
#include "toys.h"

namespace millrace {
namespace {

const Json kConfig = {{"train.epochs", 3}, {"train.validate_every", 7}, {"snapshot.every_steps", 5}, {"toy.dropout", 0.2}};

class Stop : public testing::TestWithParam<std::tuple<const char*, int, int>> {
 protected:
  void SetUp() override {
    // Where the tests were started with & by a script, SIGINT is ignored, and stays so.
    for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) std::signal(number, SIG_DFL);
    install_signal_handlers();
    reset_pending_signal_for_test();
  }
  void TearDown() override {
    toys::at_point = nullptr;
    reset_pending_signal_for_test();
  }
};

TEST_P(Stop, IsSavedAndResumesExactly) {
  const auto& [where, signal, visits] = GetParam();
  const toys::TemporaryFolder folder;
  int seen = 0;
  toys::at_point = [&, point = std::string(where), number = signal, when = visits](const char* at) {
    if (point == at && ++seen == when) std::raise(number);
  };
  const RunOutcome stopped = toys::run(toys::grouped_regression(), folder.path(), kConfig);
  EXPECT_EQ(stopped.exit_code, 128 + signal);
  EXPECT_EQ(stopped.summary["exit_reason"], "signal");
  toys::at_point = nullptr;
  reset_pending_signal_for_test();
  const RunOutcome resumed = toys::run(toys::grouped_regression(), folder.path(), kConfig);
  EXPECT_EQ(resumed.exit_code, 0);
  const RunOutcome straight = toys::run(toys::grouped_regression(), "", kConfig);
  EXPECT_EQ(resumed.summary["state_sha256"], straight.summary["state_sha256"]);
  EXPECT_EQ(resumed.summary["metrics"], straight.summary["metrics"]);
}

INSTANTIATE_TEST_SUITE_P(Points, Stop,
                         testing::Values(std::tuple{"read", SIGTERM, 40}, std::tuple{"loss", SIGTERM, 1},
                                         std::tuple{"loss", SIGTERM, 16}, std::tuple{"measure", SIGTERM, 2},
                                         std::tuple{"measure", SIGTERM, 14}, std::tuple{"loss", SIGINT, 9},
                                         std::tuple{"loss", SIGHUP, 9}, std::tuple{"loss", SIGUSR1, 9}),
                         [](const auto& param_info) {
                           return std::string(std::get<0>(param_info.param)) + "_" +
                                  std::to_string(std::get<1>(param_info.param)) + "_" +
                                  std::to_string(std::get<2>(param_info.param));
                         });

// Raises SIGTERM while a snapshot's file is being written.
class SignalFs final : public Fs {
 public:
  std::unique_ptr<WritableFile> create(const std::filesystem::path& path) override {
    if (path.filename() == "model.safetensors" && ++saves_ == 2)
      ::kill(::getpid(), SIGTERM);  // of the process: a thread's own would stay blocked
    return real_.create(path);
  }
  std::unique_ptr<WritableFile> create_new(const std::filesystem::path& path) override { return real_.create_new(path); }
  std::unique_ptr<WritableFile> append(const std::filesystem::path& path) override { return real_.append(path); }
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override { real_.rename(from, to); }
  void remove_all(const std::filesystem::path& path) override { real_.remove_all(path); }
  void create_directories(const std::filesystem::path& path) override { real_.create_directories(path); }
  void sync_directory(const std::filesystem::path& path) override { real_.sync_directory(path); }
  std::string read_file(const std::filesystem::path& path) override { return real_.read_file(path); }
  bool exists(const std::filesystem::path& path) override { return real_.exists(path); }
  std::vector<std::string> list(const std::filesystem::path& path) override { return real_.list(path); }
  std::uint64_t free_bytes(const std::filesystem::path& path) override { return real_.free_bytes(path); }

 private:
  Fs& real_ = Fs::real();
  int saves_ = 0;
};

TEST_F(Stop, DuringASaveTheSaveIsFinished) {
  const toys::TemporaryFolder folder;
  SignalFs fs;
  const RunOutcome stopped = toys::run(toys::grouped_regression(), folder.path(), kConfig, false, &fs);
  EXPECT_EQ(stopped.exit_code, 143);
  reset_pending_signal_for_test();
  const RunOutcome resumed = toys::run(toys::grouped_regression(), folder.path(), kConfig);
  const RunOutcome straight = toys::run(toys::grouped_regression(), "", kConfig);
  EXPECT_EQ(resumed.summary["state_sha256"], straight.summary["state_sha256"]);
}

TEST_F(Stop, ADataErrorKeepsTheLastWholeStep) {
  const toys::TemporaryFolder folder;
  int seen = 0;
  toys::at_point = [&](const char* at) {
    if (std::string_view(at) == "loss" && ++seen == 13) throw DataError({"sample 3 can't be read", "a test", "repair it"});
  };
  EXPECT_THROW((void)toys::run(toys::grouped_regression(), folder.path(), {{"train.epochs", 3}}), DataError);
  toys::at_point = nullptr;
  const RunOutcome resumed = toys::run(toys::grouped_regression(), folder.path(), {{"train.epochs", 3}});
  const RunOutcome straight = toys::run(toys::grouped_regression(), "", {{"train.epochs", 3}});
  EXPECT_EQ(resumed.summary["state_sha256"], straight.summary["state_sha256"]);
}

}  // namespace
}  // namespace millrace
