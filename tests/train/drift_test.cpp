// A long run ends as it began: with the same memory, threads, files and time per step.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "millrace/device/device.h"
#include "toys.h"

namespace millrace {
namespace {

std::set<std::string> entries_of(const char* folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

// Of the loop's thread alone, so that a busy machine does not matter.
double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Epoch {
  std::set<std::string> threads;  // their numbers: threads that are made anew have others
  std::size_t files = 0;
  std::uint64_t bytes = 0;
  double median_seconds = 0;  // between two forward passes
};

TEST(Drift, TwoHundredEpochsLeaveEverythingAsItWas) {
  constexpr std::size_t kEpochs = 200;
  constexpr std::size_t kPasses = 22;  // of an epoch: 11 batches of training, 11 of validation
  std::vector<Epoch> epochs;
  std::vector<double> seconds;
  double last = cpu_seconds();
  toys::at_point = [&](const char* point) {
    if (std::string_view(point) != "loss") return;
    const double now = cpu_seconds();
    seconds.push_back(now - last);
    if (seconds.size() == kPasses) {
      std::nth_element(seconds.begin(), seconds.begin() + kPasses / 2, seconds.end());
      epochs.push_back(
          {entries_of("/proc/self/task"), entries_of("/proc/self/fd").size(), device::resident_bytes(), seconds[kPasses / 2]});
      seconds.clear();
    }
    last = cpu_seconds();
  };
  ::setenv("OMP_WAIT_POLICY", "active", 1);  // libgomp has read it: all that it says is that no idle threads come and go
  const toys::TemporaryFolder folder;
  const RunOutcome run = toys::run(toys::grouped_regression(), folder.path(),
                                   {{"train.epochs", kEpochs},
                                    {"data.workers", 2},
                                    {"snapshot.every_epochs", 10},
                                    {"log.every", 50},
                                    {"toy.dropout", 0.1},
                                    {"optim.ema_decay", 0.99},
                                    {"optim.spike_zscore", 8.0}});
  toys::at_point = nullptr;
  ::unsetenv("OMP_WAIT_POLICY");
  EXPECT_EQ(run.summary["epochs"], kEpochs);
  ASSERT_EQ(epochs.size(), kEpochs);
  const auto median_of = [&](std::size_t begin, std::size_t end) {
    std::vector<double> values;
    for (std::size_t i = begin; i < end; ++i) values.push_back(epochs[i].median_seconds);
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
    return values[values.size() / 2];
  };
  const Epoch& early = epochs[49];
  const Epoch& late = epochs.back();
  EXPECT_EQ(late.threads, early.threads);
  EXPECT_EQ(late.files, early.files);
  EXPECT_LT(static_cast<double>(late.bytes), static_cast<double>(early.bytes) + 6e6);
  EXPECT_LT(median_of(150, 200), 2.0 * median_of(10, 60));
}

}  // namespace
}  // namespace millrace
