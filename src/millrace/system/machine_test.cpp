#include "millrace/system/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>

namespace millrace {
namespace {

namespace fs = std::filesystem;

class MachineTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ =
        fs::path(testing::TempDir()) / (std::string("machine_") + testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  void put(const fs::path& path, std::string_view text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void put_core(int cpu, int package, int core) {
    const fs::path topology = fs::path("sys/devices/system/cpu/cpu" + std::to_string(cpu)) / "topology";
    put(topology / "physical_package_id", std::to_string(package) + "\n");
    put(topology / "core_id", std::to_string(core) + "\n");
  }
  fs::path root_;
  [[nodiscard]] Machine machine() const { return Machine(root_); }
};

TEST_F(MachineTest, NothingThereIsUnknown) {
  EXPECT_EQ(machine().cpu_name(), "");
  EXPECT_TRUE(machine().cpu_flags().empty());
  EXPECT_EQ(machine().cpu_quota(), std::nullopt);
  EXPECT_EQ(machine().available_memory(), std::nullopt);
  EXPECT_FALSE(machine().has_nvidia_gpu());
  EXPECT_EQ(machine().physical_cores(std::array{0, 1, 2}), 3);
  EXPECT_EQ(machine().physical_cores({}), 1);
}

TEST_F(MachineTest, ReadsNameAndFlagsOfTheFirstProcessor) {
  put("proc/cpuinfo",
      "processor\t: 0\nmodel name\t: Example 9000\nflags\t\t: fpu avx2 avx512_bf16\n\n"
      "processor\t: 1\nmodel name\t: Other\nflags\t\t: fpu\n");
  EXPECT_EQ(machine().cpu_name(), "Example 9000");
  EXPECT_THAT(machine().cpu_flags(), testing::ElementsAre("avx2", "avx512_bf16", "fpu"));
}

TEST_F(MachineTest, CountsCoresNotThreads) {
  put_core(0, 0, 0);
  put_core(1, 0, 1);
  put_core(2, 0, 0);  // second thread of core 0
  put_core(3, 1, 0);  // the same number on another socket
  EXPECT_EQ(machine().physical_cores(std::array{0, 1, 2, 3}), 3);
  EXPECT_EQ(machine().physical_cores(std::array{0, 2}), 1);
  EXPECT_EQ(machine().physical_cores(std::array{0, 3}), 2);
}

TEST_F(MachineTest, CoresOfDifferentDiesAreDifferent) {
  for (const int cpu : {0, 1, 2, 3}) {
    put_core(cpu, 0, cpu % 2);
    put("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/die_id", std::to_string(cpu / 2) + "\n");
  }
  EXPECT_EQ(machine().physical_cores(std::array{0, 1, 2, 3}), 4);
}

TEST_F(MachineTest, TightestQuotaOfVersion2Wins) {
  put("proc/self/cgroup", "0::/slice/job\n");
  put("sys/fs/cgroup/slice/job/cpu.max", "max 100000\n");
  EXPECT_EQ(machine().cpu_quota(), std::nullopt);
  put("sys/fs/cgroup/slice/cpu.max", "150000 100000\n");
  EXPECT_EQ(machine().cpu_quota(), 1.5);
  put("sys/fs/cgroup/slice/job/cpu.max", "50000 100000\n");
  EXPECT_EQ(machine().cpu_quota(), 0.5);
}

TEST_F(MachineTest, QuotaOfVersion1) {
  put("proc/self/cgroup", "5:memory:/m\n4:cpu,cpuacct:/box\n0::/\n");
  put("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "-1\n");
  put("sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(machine().cpu_quota(), std::nullopt);
  put("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "400000\n");
  EXPECT_EQ(machine().cpu_quota(), 4.0);
}

TEST_F(MachineTest, WhatQuotasHeldBackIsOfAllLevels) {
  EXPECT_EQ(machine().throttled_seconds(), 0);
  put("proc/self/cgroup", "0::/slice/job\n");
  put("sys/fs/cgroup/slice/job/cpu.stat", "usage_usec 7\nnr_throttled 3\nthrottled_usec 500000\n");
  put("sys/fs/cgroup/slice/cpu.stat", "usage_usec 9\nnr_periods 0\nnr_throttled 0\nthrottled_usec 1500000\n");
  EXPECT_DOUBLE_EQ(machine().throttled_seconds(), 2);
  put("proc/self/cgroup", "4:cpu,cpuacct:/box\n0::/\n");
  put("sys/fs/cgroup/cpu/box/cpu.stat", "nr_periods 5\nnr_throttled 2\nthrottled_time 250000000\n");
  EXPECT_DOUBLE_EQ(machine().throttled_seconds(), 0.25);
}

TEST_F(MachineTest, MemoryOfTheMachineWithoutGroups) {
  put("proc/meminfo", "MemTotal:       100 kB\nMemFree:  10 kB\nMemAvailable:   50 kB\n");
  EXPECT_EQ(machine().available_memory(), 50U * 1024);
}

TEST_F(MachineTest, MemoryBelowALimitOfVersion2CountsFilePagesAsFree) {
  put("proc/meminfo", "MemAvailable:   1000 kB\n");
  put("proc/self/cgroup", "0::/job\n");
  put("sys/fs/cgroup/job/memory.max", "102400\n");
  put("sys/fs/cgroup/job/memory.current", "51200\n");
  put("sys/fs/cgroup/job/memory.stat", "anon 40000\ninactive_file 1200\n");
  EXPECT_EQ(machine().available_memory(), 102400U - 50000U);
  put("sys/fs/cgroup/job/memory.current", "999999\n");  // use above the limit means that no memory is left, not a huge number
  EXPECT_EQ(machine().available_memory(), 0U);
  put("sys/fs/cgroup/job/memory.max", "max\n");
  EXPECT_EQ(machine().available_memory(), 1000U * 1024);
}

TEST_F(MachineTest, MemoryBelowTheMarkAtWhichTheKernelSlowsAProcessDown) {
  put("proc/meminfo", "MemAvailable:   1000 kB\n");
  put("proc/self/cgroup", "0::/job\n");
  put("sys/fs/cgroup/job/memory.max", "max\n");
  put("sys/fs/cgroup/job/memory.high", "90000\n");
  put("sys/fs/cgroup/job/memory.current", "51200\n");
  EXPECT_EQ(machine().available_memory(), 90000U - 51200U);
  EXPECT_EQ(machine().memory_limit(), 90000U);
  put("sys/fs/cgroup/job/memory.max", "60000\n");
  EXPECT_EQ(machine().available_memory(), 60000U - 51200U);
  put("sys/fs/cgroup/job/memory.max", "102400\n");
  EXPECT_EQ(machine().memory_limit(), 90000U);
}

TEST_F(MachineTest, MemoryBelowALimitOfVersion1) {
  put("proc/meminfo", "MemAvailable:   1000 kB\n");
  put("proc/self/cgroup", "5:memory:/outer/box\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("sys/fs/cgroup/memory/memory.usage_in_bytes", "4096\n");
  EXPECT_EQ(machine().available_memory(), 1000U * 1024);
  put("sys/fs/cgroup/memory/outer/memory.limit_in_bytes", "8192\n");
  put("sys/fs/cgroup/memory/outer/memory.usage_in_bytes", "4096\n");
  put("sys/fs/cgroup/memory/outer/memory.stat", "total_inactive_file 1000\n");
  EXPECT_EQ(machine().available_memory(), 5096U);
}

TEST_F(MachineTest, TightestLimitsOfTheGroups) {
  EXPECT_EQ(machine().memory_limit(), std::nullopt);
  EXPECT_EQ(machine().thread_limit(), std::nullopt);
  put("proc/self/cgroup", "0::/a/b\n");
  put("sys/fs/cgroup/a/b/memory.max", "max\n");
  put("sys/fs/cgroup/a/memory.max", "5000\n");
  put("sys/fs/cgroup/a/b/pids.max", "70\n");
  put("sys/fs/cgroup/a/pids.max", "100\n");
  EXPECT_EQ(machine().memory_limit(), 5000);
  EXPECT_EQ(machine().thread_limit(), 70);
  put("proc/self/cgroup", "5:memory:/c\n6:pids:/c\n");
  put("sys/fs/cgroup/memory/c/memory.limit_in_bytes", "9223372036854771712\n");
  put("sys/fs/cgroup/pids/c/pids.max", "max\n");
  EXPECT_EQ(machine().memory_limit(), std::nullopt);
  EXPECT_EQ(machine().thread_limit(), std::nullopt);
}

TEST_F(MachineTest, MalformedFilesAreUnknown) {
  put("proc/cpuinfo", "model name\nflags\n");
  put("proc/meminfo", "MemAvailable\nMemAvailable: many kB\n");
  put("proc/self/cgroup", "\nnonsense\n3\n0::\n");
  put("sys/fs/cgroup/cpu.max", "100000 0\n");
  put("sys/fs/cgroup/memory.max", "99999999999999999999999999\n");
  put("sys/fs/cgroup/memory.current", "-5\n");
  EXPECT_EQ(machine().cpu_name(), "");
  EXPECT_EQ(machine().cpu_quota(), std::nullopt);
  EXPECT_EQ(machine().available_memory(), std::nullopt);
}

TEST_F(MachineTest, SeesAGpuByItsDriverFiles) {
  fs::create_directories(root_ / "proc/driver/nvidia/gpus");
  EXPECT_FALSE(machine().has_nvidia_gpu());
  put("proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: X\n");
  EXPECT_TRUE(machine().has_nvidia_gpu());
}

}  // namespace
}  // namespace millrace
