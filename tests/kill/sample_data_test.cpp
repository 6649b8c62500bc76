// Sample data exists whole or not at all: made by several processes at once, killed at every call, after errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <fstream>

#include "millrace/base/error.h"
#include "millrace/train/run_folder/sample_data.h"
#include "tests/support/fault_fs.h"
#include "toys.h"

namespace millrace {
namespace {

namespace stdfs = std::filesystem;

constexpr int kFiles = 12;
constexpr int kAnother = 7;  // exit code: another process made it

// Dies at the given call, counted from 0; -1 = never.
class DeadlyFs final : public FaultFs {
 public:
  explicit DeadlyFs(std::int64_t last) : FaultFs(Fs::real()), last_(last) {}
  void reach() {
    if (reached_++ == last_) ::kill(::getpid(), SIGKILL);
  }
  [[nodiscard]] std::int64_t reached() const { return reached_; }
  std::unique_ptr<WritableFile> create(const stdfs::path& path) override {
    reach();
    return FaultFs::create(path);
  }
  std::unique_ptr<WritableFile> append(const stdfs::path& path) override {
    reach();
    return FaultFs::append(path);
  }
  void rename(const stdfs::path& from, const stdfs::path& to) override {
    reach();
    FaultFs::rename(from, to);
  }
  void remove_all(const stdfs::path& path) override {
    reach();
    FaultFs::remove_all(path);
  }
  void create_directories(const stdfs::path& path) override {
    reach();
    FaultFs::create_directories(path);
  }
  void sync_directory(const stdfs::path& path) override {
    reach();
    FaultFs::sync_directory(path);
  }

 private:
  std::int64_t last_;
  std::int64_t reached_ = 0;
};

void write_toy(Fs& fs, const stdfs::path& folder) {
  fs.create_directories(folder / "below");
  for (int i = 0; i < kFiles; ++i) {
    const auto file = fs.create(folder / (i % 2 == 0 ? "below" : ".") / ("file" + std::to_string(i)));
    file->write(std::as_bytes(std::span("letters", 7)));
    file->close();
  }
}

int files_in(const stdfs::path& folder) {
  int files = 0;
  for (const auto& entry : stdfs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files += entry.file_size() == 7 ? 1 : 100;
  }
  return files;
}

// A child process that does `work`; its exit code is what that returns, 3 after an error.
pid_t start(const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  int code = 3;
  try {
    code = work();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  std::fflush(stderr);
  ::_exit(code);
}

int end_of(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

class Pipe {
 public:
  Pipe() { EXPECT_EQ(::pipe(ends_.data()), 0); }
  ~Pipe() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void wait() const {
    char letter = 0;
    EXPECT_EQ(::read(ends_[0], &letter, 1), 1);
  }
  void go() const { EXPECT_EQ(::write(ends_[1], "g", 1), 1); }

 private:
  std::array<int, 2> ends_{};
};

class SampleData : public testing::Test {
 protected:
  stdfs::path target() const { return folder_.path() / "runs" / "toy"; }
  stdfs::path part() const { return folder_.path() / "runs" / ".toy.millrace-part"; }
  int make(Fs& fs, const std::function<void(const std::string&)>& tell = {}) const {
    const SampleDataMaker maker{.make = [&fs](const stdfs::path& out) { write_toy(fs, out); }, .begin = {}, .report = tell};
    return make_sample_data(fs, target(), maker) ? 0 : kAnother;
  }
  toys::TemporaryFolder folder_;
};

TEST_F(SampleData, ThreeAtOnceMakeItOnce) {
  for (int round = 0; round < 60; ++round) {
    const Pipe ready;
    std::array<pid_t, 3> children{};
    for (pid_t& child : children) {
      child = start([&] {
        ready.wait();
        return make(Fs::real());
      });
    }
    for (int i = 0; i < 3; ++i) ready.go();
    int made = 0;
    for (const pid_t child : children) {
      const int code = end_of(child);
      EXPECT_THAT(code, testing::AnyOf(0, kAnother)) << "round " << round;
      made += code == 0 ? 1 : 0;
    }
    ASSERT_EQ(made, 1) << "round " << round;
    ASSERT_EQ(files_in(target()), kFiles);
    ASSERT_FALSE(stdfs::exists(part()));
    stdfs::remove_all(target());
  }
}

TEST_F(SampleData, KilledAtEveryCallItIsWholeOrAbsentAndTheNextOneMakesIt) {
  DeadlyFs counting(-1);
  ASSERT_EQ(make(counting), 0);
  const std::int64_t calls = counting.reached();
  ASSERT_GT(calls, 2 * kFiles);
  int whole = 0;
  for (std::int64_t k = 0; k < calls; ++k) {
    stdfs::remove_all(folder_.path() / "runs");
    ASSERT_EQ(end_of(start([&] {
                DeadlyFs fs(k);
                return make(fs);
              })),
              128 + SIGKILL)
        << k;
    const bool is_there = stdfs::exists(target());
    whole += is_there ? 1 : 0;
    ASSERT_TRUE(!is_there || files_in(target()) == kFiles) << k;
    ASSERT_EQ(make(Fs::real()), is_there ? kAnother : 0) << k;
    ASSERT_EQ(files_in(target()), kFiles) << k;
    ASSERT_FALSE(stdfs::exists(part())) << k;
  }
  EXPECT_GT(whole, 0) << "no kill came after the rename";
}

TEST_F(SampleData, WhoWaitsForAKilledOneSaysSoAndMakesIt) {
  const Pipe begun;
  const Pipe never;
  const Pipe waiting;
  const pid_t killed = start([&] {
    return make_sample_data(Fs::real(), target(),
                            {.make =
                                 [&](const stdfs::path& out) {
                                   std::ofstream(out / "half") << "of it";
                                   begun.go();
                                   never.wait();
                                 },
                             .begin = {},
                             .report = {}})
               ? 0
               : kAnother;
  });
  begun.wait();
  const stdfs::path said = folder_.path() / "said";
  const pid_t next = start([&] {
    return make(Fs::real(), [&](const std::string& text) {
      std::ofstream(said) << text;
      waiting.go();
    });
  });
  waiting.wait();
  EXPECT_FALSE(stdfs::exists(target()));
  ::kill(killed, SIGKILL);
  EXPECT_EQ(end_of(killed), 128 + SIGKILL);
  EXPECT_EQ(end_of(next), 0);
  EXPECT_EQ(files_in(target()), kFiles) << "the killed one's file is not among them";
  EXPECT_EQ(Fs::real().read_file(said), "another process is making the sample data in " + target().string() + "; waiting for it");
}

TEST_F(SampleData, AfterAnErrorNothingStaysAndTheNextOneMakesIt) {
  FaultFs counting(Fs::real());
  ASSERT_EQ(make(counting), 0);
  for (std::int64_t k = 0; k < counting.calls(); ++k) {
    stdfs::remove_all(folder_.path() / "runs");
    FaultFs fs(Fs::real(), {.fail_at = k, .error_number = ENOSPC});
    try {
      (void)make(fs);
    } catch (const FsError&) {
      EXPECT_TRUE(!stdfs::exists(target()) || files_in(target()) == kFiles) << fs.log().back();
    }
    (void)make(Fs::real());
    ASSERT_EQ(files_in(target()), kFiles) << k;
    ASSERT_FALSE(stdfs::exists(part())) << k;
  }
}

TEST_F(SampleData, WhatAUserPutThereIsNeitherClearedNorReplaced) {
  const auto refusal = [&] {
    try {
      (void)make(Fs::real());
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string("made");
  };
  const std::string begin = "DataError  " + part().string() + " is in the way of the sample data\n  where    ";
  const std::string end = "\n  next     rename or remove it";
  stdfs::create_directories(part());
  std::ofstream(part() / "photo.jpg") << "mine";
  EXPECT_EQ(refusal(), begin + "it is not empty, and Millrace did not make it" + end);
  EXPECT_EQ(Fs::real().read_file(part() / "photo.jpg"), "mine");
  stdfs::remove_all(part());
  std::ofstream(part()) << "a file";
  EXPECT_EQ(refusal(), begin + "it is not a folder" + end);
  stdfs::remove(part());
  stdfs::create_symlink(folder_.path(), part());
  EXPECT_EQ(refusal(), begin + "it is not a folder" + end);
  stdfs::remove(part());
  stdfs::create_directories(target());
  EXPECT_EQ(make(Fs::real()), 0) << "an empty folder is replaced";
  EXPECT_EQ(make(Fs::real()), kAnother) << "another is left alone";
  EXPECT_EQ(files_in(target()), kFiles);
}

TEST_F(SampleData, TheCurrentFolderIsNotTakenAway) {
  const stdfs::path here = folder_.path() / "here";
  stdfs::create_directories(here);
  EXPECT_EQ(end_of(start([&] {
              stdfs::current_path(here);
              try {
                (void)make_sample_data(Fs::real(), ".", {});
              } catch (const DataError& error) {
                return error.message().where == "it is the current folder" ? 0 : 1;
              }
              return 2;
            })),
            0);
}

// In /proc no folder can be made, and the system says that a part of the path is missing.
TEST_F(SampleData, WhereNoFolderCanBeMadeItSaysSo) {
  EXPECT_THROW((void)make_sample_data(Fs::real(), "/proc/millrace-sky", {}), FsError);
}

// By the way of a run, whose data source then counts the rows it was given.
TEST_F(SampleData, RunsWithoutInputWaitForEachOther) {
  Entry entry = toys::grouped_regression();
  entry.needs_data = [](const Json& config) { return config.at("data").at("dir") == ""; };
  entry.make_data = [](const std::string&, const stdfs::path& out, std::uint64_t) { write_toy(Fs::real(), out); };
  entry.make = [make = entry.make](const Json& config, const Context& context) {
    if (files_in(config.at("data").at("dir").get<std::string>()) != kFiles) throw std::runtime_error("data with files missing");
    return make(config, context);
  };
  const config::Schema schema = schema_of(entry);
  config::Layers layers(schema);
  layers.add_values(entry.defaults, "recipe");
  telemetry::Console console(telemetry::Console::Mode::quiet);
  RunRequest request{
      .entry = &entry, .config = layers.resolve(), .preset = "smoke", .dry_run = DryRun::plan, .console = &console};
  for (int round = 0; round < 8; ++round) {
    const Pipe ready;
    std::array<pid_t, 3> children{};
    for (pid_t& child : children) {
      child = start([&] {
        stdfs::current_path(folder_.path());
        ready.wait();
        return run_training(request).exit_code;
      });
    }
    for (int i = 0; i < 3; ++i) ready.go();
    for (const pid_t child : children) EXPECT_EQ(end_of(child), 0) << "round " << round;
    stdfs::remove_all(folder_.path() / "runs");
  }
}

}  // namespace
}  // namespace millrace
