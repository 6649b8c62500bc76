// kill -9 by the hundred: each victim is a fork of this program, which has LibTorch loaded and never uses it, so that a life
// costs milliseconds. Victims die at a chosen call of the file system inside a save, at a chosen point of the loop, or at a
// random moment; the next one resumes with the same command.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "millrace/base/philox.h"
#include "tests/support/fault_fs.h"
#include "toys.h"

namespace millrace {
namespace {

namespace stdfs = std::filesystem;

constexpr std::int64_t kSteps = 60;
constexpr std::int64_t kInterval = 4;  // steps between snapshots

// Written by the victim, read by the supervisor when it is dead.
struct Trace {
  std::atomic<std::int64_t> losses{0}, evaluations{0};  // forward passes, those without gradients
  std::atomic<std::int64_t> calls_in_saves{0};
  std::atomic<bool> in_save{false};
  std::atomic<std::int64_t> durable{0};  // step of the newest snapshot whose save returned
};

struct Death {
  enum class Kind : std::uint8_t { none, save_call, loss, moment } kind = Kind::none;
  std::int64_t when = 0;  // of save_call and loss: which one; of moment: microseconds
};

// Counts the calls of saves, from the temporary folder to the sync that makes it durable, and dies at the chosen one.
class TracedFs final : public FaultFs {
 public:
  TracedFs(Trace& trace, const Death& death) : FaultFs(Fs::real()), trace_(trace), death_(death) {}
  void create_directories(const stdfs::path& path) override {
    if (is_temporary(path)) {
      trace_.in_save = true;
      const std::string name = path.filename().string();
      step_ = std::stoll(name.substr(std::string(".tmp-step-").size(), 8));
    }
    reach();
    FaultFs::create_directories(path);
  }
  std::unique_ptr<WritableFile> create(const stdfs::path& path) override {
    reach();
    return std::make_unique<TracedFile>(*this, FaultFs::create(path));
  }
  void rename(const stdfs::path& from, const stdfs::path& to) override {
    reach();
    FaultFs::rename(from, to);
  }
  void sync_directory(const stdfs::path& path) override {
    reach();
    FaultFs::sync_directory(path);
    if (path.filename() != "snapshots" || !trace_.in_save) return;
    trace_.durable = step_;
    trace_.in_save = false;
  }

 private:
  class TracedFile final : public WritableFile {
   public:
    TracedFile(TracedFs& fs, std::unique_ptr<WritableFile> file) : fs_(fs), file_(std::move(file)) {}
    void write(std::span<const std::byte> bytes) override {
      if (fs_.is_last()) file_->write(bytes.first(bytes.size() / 2));  // as a kill in the middle of a long write
      fs_.reach();
      file_->write(bytes);
    }
    void sync() override {
      fs_.reach();
      file_->sync();
    }
    void close() override {
      fs_.reach();
      file_->close();
    }

   private:
    TracedFs& fs_;
    std::unique_ptr<WritableFile> file_;
  };
  static bool is_temporary(const stdfs::path& path) { return path.filename().string().starts_with(".tmp-step-"); }
  bool is_last() const {
    return trace_.in_save && death_.kind == Death::Kind::save_call && trace_.calls_in_saves + 1 == death_.when;
  }
  void reach() {
    if (!trace_.in_save) return;
    const bool last = is_last();
    ++trace_.calls_in_saves;
    if (last) ::kill(::getpid(), SIGKILL);
  }

  Trace& trace_;
  Death death_;
  std::int64_t step_ = 0;
};

struct Victim {
  stdfs::path folder;
  bool in_background = true;
  std::int64_t readers = 0;
};

[[noreturn]] void live(const Victim& victim, Trace& trace, const Death& death) {
  int code = 0;
  try {
    toys::at_point = [&](const char* point) {
      const std::string_view at = point;
      if (at != "loss") return;
      if (!at::GradMode::is_enabled()) ++trace.evaluations;
      if (++trace.losses == death.when && death.kind == Death::Kind::loss) ::kill(::getpid(), SIGKILL);
    };
    TracedFs fs(trace, death);
    Json config = {{"train.epochs", 0},          {"train.max_steps", kSteps},     {"train.validate_every", 10},
                   {"toy.dropout", 0.2},         {"optim.accumulate", 2},         {"snapshot.every_steps", kInterval},
                   {"snapshot.every_epochs", 0}, {"snapshot.keep_last", 2},       {"log.tensorboard", false},
                   {"log.images", false},        {"data.workers", victim.readers}};
    if (!victim.in_background) config["train.off"] = {"async_snapshot"};
    (void)toys::run(toys::grouped_regression(), victim.folder, config, false, &fs);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    code = 3;
  }
  std::fflush(stderr);
  ::_exit(code);  // not this test program's own end
}

class Forked : public testing::Test {
 protected:
  void SetUp() override {
    const stdfs::path memory = "/dev/shm";
    folder_ = (::access(memory.c_str(), W_OK) == 0 ? memory : stdfs::temp_directory_path()) /
              ("millrace-forked-" + std::to_string(::getpid()));
    stdfs::remove_all(folder_);
    stdfs::create_directories(folder_);
    void* const shared = ::mmap(nullptr, sizeof(Trace), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(shared, MAP_FAILED);
    trace_ = new (shared) Trace;
  }
  void TearDown() override {
    ::munmap(trace_, sizeof(Trace));
    stdfs::remove_all(folder_);
  }

  // Its status when it is dead, one way or the other.
  int run(const Victim& victim, const Death& death) {
    trace_ = new (trace_) Trace;
    const pid_t child = ::fork();
    if (child == 0) live(victim, *trace_, death);
    if (death.kind == Death::Kind::moment) {
      std::this_thread::sleep_for(std::chrono::microseconds(death.when));
      ::kill(child, SIGKILL);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return status;
  }

  static std::string digest(const stdfs::path& at) {
    std::ifstream file(at / "summary.json");
    const Json summary = Json::parse(file, nullptr, false);
    return summary.is_object() ? summary.value("state_sha256", "") : "";
  }
  // Steps the newest process began with, by the number of processes that got so far.
  static std::vector<std::int64_t> starts(const stdfs::path& at) {
    std::vector<std::int64_t> steps;
    std::ifstream file(at / "log.jsonl");
    for (std::string line; std::getline(file, line);) {
      const Json json = Json::parse(line, nullptr, false);
      if (json.is_object() && json.value("kind", "") == "start") steps.push_back(json.value("step", std::int64_t{-1}));
    }
    return steps;
  }

  stdfs::path folder_;
  Trace* trace_ = nullptr;
};

// By a life that began with step `start` and made so many forward passes in training: 41 rows in batches of 4, accumulated by 2,
// are eleven of them and six steps an epoch.
std::int64_t steps_begun(std::int64_t start, std::int64_t passes) {
  const std::int64_t at = start / 6 * 11 + start % 6 * 2 + passes;
  return at / 11 * 6 + (at % 11 + 1) / 2;
}

Death choose(Philox& random) {
  const std::uint64_t kind = random.below(20);
  // A whole life makes 15 saves of some 70 calls and 110 forward passes, validation's not counted.
  if (kind < 10) return {Death::Kind::save_call, static_cast<std::int64_t>(1 + random.below(300))};
  if (kind < 14) return {Death::Kind::loss, static_cast<std::int64_t>(1 + random.below(60))};
  return {Death::Kind::moment, static_cast<std::int64_t>(random.below(60'000))};
}

TEST_F(Forked, KilledByTheHundredItLosesNothing) {
  const char* const wish = std::getenv("MILLRACE_KILLS");
  const int wanted = wish == nullptr ? 100 : std::atoi(wish);
  ASSERT_EQ(run({.folder = folder_ / "straight"}, {}), 0);
  const std::string expected = digest(folder_ / "straight");
  ASSERT_EQ(expected.size(), 64U);

  Philox random(make_key(23));
  int kills = 0;
  int inside = 0;
  std::int64_t most_lost = 0;
  for (int round = 0; kills < wanted; ++round) {
    // Rounds differ in where snapshots are written and in the readers.
    const Victim victim{folder_ / ("round" + std::to_string(round)), round % 2 == 0, round % 4 < 2 ? 0 : 2};
    std::int64_t reached = -1;  // steps begun by the life before, when it got so far
    std::int64_t durable = 0;
    for (int lives = 0;; ++lives) {
      const bool kill_this = kills < wanted && lives < 12;
      const std::size_t begun = starts(victim.folder).size();
      const int status = run(victim, kill_this ? choose(random) : Death{});
      const std::vector<std::int64_t> after = starts(victim.folder);
      if (after.size() > begun && after.size() > 0) {
        if (reached >= 0) {
          EXPECT_GE(after.back(), durable) << "round " << round << ": older than what was saved";
          EXPECT_LE(reached - after.back(), kInterval + 1) << "round " << round;
          most_lost = std::max(most_lost, reached - after.back());
        }
        reached = steps_begun(after.back(), trace_->losses - trace_->evaluations);
      }
      durable = std::max(durable, trace_->durable.load());
      if (!WIFSIGNALED(status)) {
        ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "round " << round << " after " << lives << " kills";
        break;
      }
      ++kills;
      inside += trace_->in_save ? 1 : 0;
    }
    ASSERT_EQ(digest(victim.folder), expected) << "round " << round;
    for (const auto& entry : stdfs::directory_iterator(victim.folder / "snapshots")) {
      EXPECT_TRUE(entry.path().filename().string().starts_with("step-")) << entry.path() << " is left over";
    }
    stdfs::remove_all(victim.folder);
  }
  EXPECT_GE(inside * 10, kills * 3) << "too few kills hit a save";
  RecordProperty("kills", kills);
  RecordProperty("inside_a_save", inside);
  RecordProperty("most_steps_lost", static_cast<int>(most_lost));
  std::printf("%d kills, %d of them inside a save; at most %lld steps lost of an interval of %lld\n", kills, inside,
              static_cast<long long>(most_lost), static_cast<long long>(kInterval));
}

}  // namespace
}  // namespace millrace
