// Power fails while a snapshot is saved and older ones are removed. Whatever the disk has kept, the run must resume from a whole
// snapshot.
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include "millrace/base/error.h"
#include "millrace/snapshot/detail/test_content.h"
#include "millrace/snapshot/keeper.h"
#include "tests/support/power_loss.h"

namespace millrace::snapshot {
namespace {

namespace stdfs = std::filesystem;
using detail::small;

// A tensor of several sectors, so that a write can be torn inside it.
Content content_of(std::int64_t step, double value = 0) {
  Content content = small(step, value);
  content.models["model"]["large"] = at::full({600}, static_cast<double>(step) + value);
  return content;
}

void retain(Fs& fs, const stdfs::path& run) {
  const auto fail = [](const std::string& text) { ADD_FAILURE() << text; };
  Keeper keeper(fs, run);
  keeper.clear_leftovers({::getpid()}, fail);
  keeper.retain({.keep_last = 1}, fail);
}

class PowerLossTest : public testing::Test {
 protected:
  PowerLossTest()
      : root_(detail::scratch() / ("millrace-loss-" + std::to_string(::getpid()))), run_(root_ / "run"), copy_(root_ / "copy") {
    stdfs::remove_all(root_);
    stdfs::create_directories(run_);
  }
  ~PowerLossTest() override { stdfs::remove_all(root_); }

  // Saves `after` over the existing snapshots and removes older ones. Then tries every state that a power cut could leave. Each
  // state must load as `before` or `after`, and as `after` if the save had returned. It must show no damage.
  void expect_recovery(const Content& before, const Content& after) {
    PowerLossFs fs(Fs::real(), run_);
    save(fs, run_, after);
    const std::size_t durable = fs.changes();
    retain(fs, run_);
    std::int64_t states = 0;
    fs.for_each_state(0, 12, [&](const PowerLossFs::State& state) {
      ++states;
      stdfs::remove_all(copy_);
      stdfs::create_directories(copy_);
      state.make(copy_);
      const auto damaged = [&](const stdfs::path& path, const std::string& reason) {
        ADD_FAILURE() << "after " << state.changes << " changes " << path << ": " << reason;
      };
      const std::optional<Content> found = load_newest(Fs::real(), copy_, damaged);
      ASSERT_TRUE(found.has_value()) << "after " << state.changes << " changes";
      const std::string digest_found = digest(*found);
      const bool is_new = digest_found == digest(after);
      ASSERT_TRUE(is_new || (digest_found == digest(before) && found->step == before.step))
          << "after " << state.changes << " changes";
      ASSERT_TRUE(is_new || state.changes < durable)
          << "the save had returned " << durable << " changes before " << state.changes;
      for (const Found& each : list(Fs::real(), copy_)) {
        ASSERT_NO_THROW(static_cast<void>(load(Fs::real(), each.path))) << "after " << state.changes << " changes " << each.path;
      }
      // The next save and removal must work too.
      save(Fs::real(), copy_, content_of(9));
      retain(Fs::real(), copy_);
      ASSERT_EQ(Fs::real().list(copy_ / "snapshots"), std::vector<std::string>{"step-00000009"});
    });
    RecordProperty("states", std::to_string(states));
    EXPECT_GT(states, 150);
  }

  stdfs::path root_, run_, copy_;
};

TEST_F(PowerLossTest, WhileANewStepIsSaved) {
  save(Fs::real(), run_, content_of(1));
  expect_recovery(content_of(1), content_of(2));
}

TEST_F(PowerLossTest, WhileTwoOldOnesGo) {
  save(Fs::real(), run_, content_of(1));
  save(Fs::real(), run_, content_of(2));
  expect_recovery(content_of(2), content_of(3));
}

TEST_F(PowerLossTest, WhileASnapshotOfTheSameStepIsReplaced) {
  save(Fs::real(), run_, content_of(2));
  expect_recovery(content_of(2), content_of(2, 0.5));
}

// The run has no snapshot before the first one. After a power cut it has no snapshot or the whole first one.
TEST_F(PowerLossTest, WhileTheFirstOneIsSaved) {
  PowerLossFs fs(Fs::real(), run_);
  save(fs, run_, content_of(1));
  const std::size_t durable = fs.changes();
  fs.for_each_state(0, 12, [&](const PowerLossFs::State& state) {
    stdfs::remove_all(copy_);
    stdfs::create_directories(copy_);
    state.make(copy_);
    const std::optional<Content> found = load_newest(
        Fs::real(), copy_, [](const stdfs::path& path, const std::string& reason) { ADD_FAILURE() << path << ": " << reason; });
    ASSERT_TRUE(found.has_value() || state.changes < durable);
    if (found) detail::expect_equal(content_of(1), *found);
  });
}

}  // namespace
}  // namespace millrace::snapshot
