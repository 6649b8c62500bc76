#include "millrace/device/neighbours.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "millrace/system/machine.h"

namespace millrace::device {
namespace {

class NeighboursTest : public ::testing::Test {
 protected:
  NeighboursTest() : root_(::testing::TempDir() + "neighbours-" + std::to_string(::getpid())) {
    std::filesystem::create_directories(root_ / "proc/self/task/7");
    std::filesystem::create_directories(root_ / "proc/self/task/8");
  }
  ~NeighboursTest() override { std::filesystem::remove_all(root_); }

  void write(const std::string& file, const std::string& text) { std::ofstream(root_ / file) << text; }
  // threads() sets the seconds of each of two threads. cpus() sets the seconds of CPU 1 and CPU 3.
  void threads(double ran, double waited) {
    for (const char* id : {"7", "8"}) {
      write(std::string("proc/self/task/") + id + "/schedstat", std::to_string(static_cast<long long>(ran * 1e9)) + " " +
                                                                    std::to_string(static_cast<long long>(waited * 1e9)) +
                                                                    " 84\n");
    }
  }
  void cpus(double busy, double idle) {
    const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
    const std::string counts = " " + std::to_string(static_cast<long long>(busy * ticks)) + " 0 0 " +
                               std::to_string(static_cast<long long>(idle * ticks)) + " 0 0 0 0 0 0\n";
    write("proc/stat", "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\ncpu1" + counts + "cpu2 0 0 0 0 0 0 0 0 0 0\ncpu3" +
                           counts + "cpu13 5 5 5 5 5 5 5 5 0 0\nintr 5\n");
  }
  Neighbours neighbours() { return {root_, {1, 3}}; }

  std::filesystem::path root_;
};

TEST_F(NeighboursTest, WhatOthersHadWhileOursWaited) {
  threads(1, 0);
  cpus(1, 9);
  Neighbours neighbours = this->neighbours();
  threads(1.5, 0.5);  // this process and other programs each used half of two cores for a second
  cpus(2, 9);
  EXPECT_NEAR(neighbours.take().value_or(-1), 0.5, 1e-9);
  threads(2.5, 0.5);
  cpus(3, 9);
  EXPECT_NEAR(neighbours.take().value_or(-1), 0, 1e-9) << "not since the last call";
  EXPECT_NEAR(neighbours.since_made().value_or(-1), 0.25, 1e-9);
}

TEST_F(NeighboursTest, ARecentMomentIsNotCountedTwice) {
  threads(0, 0);
  cpus(0, 0);
  Neighbours neighbours = this->neighbours();
  threads(0.001, 0.04);  // almost no work, and no core was free for that work
  cpus(1, 0);
  EXPECT_EQ(neighbours.take_recent_cores(), std::nullopt);
  threads(0.101, 0.04);
  cpus(1.1, 0);
  EXPECT_NEAR(neighbours.take_recent_cores().value_or(-1), 0, 1e-9);
}

// Each parallel loop loses one core, both with 32 cores and with two.
TEST_F(NeighboursTest, CoresThatOthersHadAreNotSharedOutAmongMany) {
  std::vector<int> all(32);
  std::iota(all.begin(), all.end(), 0);
  const auto busy = [&](int seconds) {
    std::string stat;
    for (const int cpu : all)
      stat += "cpu" + std::to_string(cpu) + " " + std::to_string(seconds * ::sysconf(_SC_CLK_TCK)) + " 0 0 0 0 0 0 0 0 0\n";
    write("proc/stat", stat);
  };
  threads(0, 0);
  busy(0);
  Neighbours neighbours(root_, all);
  threads(15.5, 0.5);  // two threads of this kind together used 31 cores and waited for one
  busy(1);
  EXPECT_NEAR(neighbours.take_recent_cores().value_or(-1), 1, 1e-9);
  threads(31, 0.5);
  busy(2);
  EXPECT_NEAR(neighbours.take_recent_cores().value_or(-1), 0, 1e-9) << "others had a core that no thread of ours waited for";
}

TEST_F(NeighboursTest, OfTwoBusyCoresItIsTwiceTheShare) {
  threads(0, 0);
  cpus(0, 0);
  Neighbours neighbours = this->neighbours();
  threads(0.9, 0.1);
  cpus(1, 0);
  EXPECT_NEAR(neighbours.take_recent_cores().value_or(-1), 0.2, 1e-9);
  EXPECT_NEAR(neighbours.since_made().value_or(-1), 0.1, 1e-9);
}

TEST_F(NeighboursTest, TheQuotaOfAControlGroupIsNoNeighbour) {
  const auto held = [&](int milliseconds) {
    write("sys/fs/cgroup/job/cpu.stat", "nr_throttled 1\nthrottled_usec " + std::to_string(milliseconds * 1000) + "\n");
  };
  std::filesystem::create_directories(root_ / "sys/fs/cgroup/job");
  write("proc/self/cgroup", "0::/job\n");
  threads(0, 0);
  cpus(0, 0);
  held(100);
  Neighbours neighbours = this->neighbours();
  threads(0.5, 0.5);
  cpus(1, 0);
  held(1100);
  EXPECT_NEAR(neighbours.take().value_or(-1), 0, 1e-9);
  threads(1, 1);
  cpus(2, 0);
  held(1900);
  EXPECT_NEAR(neighbours.take().value_or(-1), 0.1, 1e-9) << "what is left of a second of waiting";
  threads(1.5, 1.5);
  cpus(3, 0);
  held(9000);
  EXPECT_NEAR(neighbours.take_recent_cores().value_or(-1), 0, 1e-9) << "other programs of the group were held, too";
}

TEST_F(NeighboursTest, OwnThreadsThatWaitForEachOtherAreNoNeighbours) {
  threads(0, 0);
  cpus(0, 0);
  Neighbours neighbours = this->neighbours();
  threads(1, 3);
  cpus(1, 0);
  EXPECT_NEAR(neighbours.take().value_or(-1), 0, 1e-9);
}

TEST_F(NeighboursTest, OthersOnCoresThatOursDidNotWantAreNone) {
  threads(0, 0);
  cpus(0, 0);
  Neighbours neighbours = this->neighbours();
  threads(0.5, 0);
  cpus(1, 0);
  EXPECT_NEAR(neighbours.take().value_or(-1), 0, 1e-9);
}

TEST_F(NeighboursTest, TooLittleWorkIsAddedToTheNextTime) {
  threads(0, 0);
  cpus(0, 0);
  Neighbours neighbours = this->neighbours();
  threads(0.01, 0.01);
  cpus(0.02, 0.08);
  EXPECT_EQ(neighbours.take(), std::nullopt);
  threads(0.5, 0.5);
  cpus(1, 0);
  EXPECT_NEAR(neighbours.take().value_or(-1), 0.5, 1e-9);
}

TEST_F(NeighboursTest, WhereTheKernelSaysNothingNothingIsSaid) {
  for (const char* stat : {"", "cpu1 1 2\ncpu3\n", "cpu1 a b c d e f g h\n", "cpux\n\n\xFF"}) {
    threads(0, 0);
    write("proc/stat", stat);
    Neighbours neighbours = this->neighbours();
    threads(1, 1);
    EXPECT_EQ(neighbours.take(), std::nullopt) << stat;
  }
  std::filesystem::remove_all(root_ / "proc");
  EXPECT_EQ(neighbours().take(), std::nullopt);
}

TEST(AllowedCpus, ThereIsOneAtLeast) { EXPECT_FALSE(allowed_cpus().empty()); }

}  // namespace
}  // namespace millrace::device
