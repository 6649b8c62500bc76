#include "millrace/doctor/sampler.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace millrace::doctor {
namespace {

using testing::DoubleNear;

void write(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

class SamplerTest : public testing::Test {
 protected:
  SamplerTest() : root_(testing::TempDir() + "sampler-" + std::to_string(::getpid())) {
    std::filesystem::create_directories(root_);
  }
  ~SamplerTest() override { std::filesystem::remove_all(root_); }
  void machine(int used_ticks, int stolen_ticks, int pressure_us, int read) {
    write(root_ / "proc/stat", "cpu " + std::to_string(used_ticks) + " 0 0 900 50 0 0 " + std::to_string(stolen_ticks) + "\n");
    write(root_ / "proc/self/io", "rchar: 5\nread_bytes: " + std::to_string(read) + "\nwrite_bytes: 7\n");
    write(root_ / "proc/self/status", "Name: x\nVmRSS:\t  2048 kB\n");
    write(root_ / "proc/meminfo", "MemTotal: 9 kB\nMemAvailable:   4096 kB\nCached: 512 kB\n");
    write(root_ / "proc/self/cgroup", "9:name=systemd:/\n4:memory:/job\n0::/\n");
    write(root_ / "sys/fs/cgroup/memory/job/memory.usage_in_bytes", "70000\n");
    for (const char* id : {"7", "8", "9"})
      write(root_ / "proc/self/task" / id / "stat", std::string(id) + (id[0] == '9' ? " (odd) name" : " (mr-reader") +
                                                        ") S 1 1 1 0 -1 0 0 0 0 0 " + std::to_string(used_ticks) + " 0 0 0\n");
    write(root_ / "proc/pressure/io",
          "some avg10=0.00 avg60=0.00 avg300=0.00 total=" + std::to_string(pressure_us) + "\nfull x\n");
    write(root_ / "proc/cpuinfo", "processor : 0\ncpu MHz : 2450.5\n");
  }
  std::filesystem::path root_;
};

TEST_F(SamplerTest, AReadingIsWhatHappenedSinceTheLast) {
  machine(1000, 10, 0, 100);
  Sampler sampler(root_);
  EXPECT_FALSE(sampler.take());
  machine(1'000'000, 20, 50, 4196);
  sampler.look();
  const auto reading = sampler.take();
  ASSERT_TRUE(reading);
  EXPECT_EQ(reading->read_bytes, 4096U);
  EXPECT_EQ(reading->written_bytes, 0U);
  EXPECT_EQ(reading->rss_bytes, 2048U * 1024);
  EXPECT_EQ(reading->available_bytes, 4096U * 1024);
  EXPECT_EQ(reading->page_cache_bytes, 512U * 1024);
  EXPECT_EQ(reading->group_bytes, 70000U);
  const double ticks = static_cast<double>(1'000'000 - 1000) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  EXPECT_THAT(reading->threads.at("mr-reader") * reading->seconds, DoubleNear(2 * ticks, 1e-6 * ticks));
  EXPECT_THAT(reading->threads.at("odd) name") * reading->seconds, DoubleNear(ticks, 1e-6 * ticks));
  EXPECT_THAT(reading->mhz.value_or(0), DoubleNear(2450.5, 1e-6));
  EXPECT_GT(reading->cpu_others, 0);
  EXPECT_THAT(reading->cpu_stolen * reading->seconds, DoubleNear(0.1, 1e-9));
  EXPECT_THAT(*reading->pressure_io * reading->seconds, DoubleNear(50e-6, 1e-12));
  EXPECT_FALSE(reading->pressure_memory);
  EXPECT_FALSE(sampler.take());
}

TEST_F(SamplerTest, TheClockIsThatOfTheCoreWithTheBusiestThread) {
  const auto thread = [&](const char* id, int ticks, int core) {
    std::string text = std::string(id) + " (x) S 1 1 1 0 -1 0 0 0 0 0 " + std::to_string(ticks) + " 0";
    for (int i = 0; i < 23; ++i) text += " 17";
    write(root_ / "proc/self/task" / id / "stat", text + " " + std::to_string(core) + " 0 0\n");
  };
  const std::filesystem::path cores = root_ / "sys/devices/system/cpu";
  write(cores / "cpu0/cpufreq/scaling_cur_freq", "800000\n");
  write(cores / "cpu3/cpufreq/scaling_cur_freq", "2000000\n");
  write(cores / "cpu5/cpufreq/scaling_cur_freq", "3000000\n");
  thread("7", 5000, 3);
  thread("8", 100, 5);
  Sampler sampler(root_);
  const auto mhz = [&] { return sampler.take().value_or(Sampler::MachineReading{}).mhz.value_or(0); };
  thread("7", 5010, 3);
  thread("8", 400, 5);
  sampler.look();
  EXPECT_THAT(mhz(), DoubleNear(3000, 1e-6));
  sampler.look();
  thread("7", 9000, 3);
  sampler.look();
  EXPECT_THAT(mhz(), DoubleNear((800 + 2000) / 2.0, 1e-6)) << "first nobody ran";
  std::filesystem::remove_all(cores);
  write(root_ / "proc/cpuinfo", "processor\t: 0\ncpu MHz\t\t: 900.5\n\nprocessor\t: 5\ncpu MHz\t\t: 3100.5\n");
  thread("8", 9000, 5);
  sampler.look();
  EXPECT_THAT(mhz(), DoubleNear(3100.5, 1e-6));
  thread("7", 12000, 3);
  sampler.look();
  EXPECT_THAT(mhz(), DoubleNear(900.5, 1e-6)) << "it tells nothing of that core";
}

TEST_F(SamplerTest, WhatIsNotThereOrIsNonsenseIsLeftOut) {
  write(root_ / "proc/stat", "cpu one two\n");
  write(root_ / "proc/pressure/cpu", "some total=\n");
  write(root_ / "proc/self/cgroup", "\nx\n:\n::\n4:memory:/../..\n0::\n");
  write(root_ / "proc/self/task/7/stat", "7 (x");
  write(root_ / "proc/self/task/99999999999/stat", "7 (x) S 1");
  Sampler sampler(root_);
  sampler.look();
  const auto reading = sampler.take();
  ASSERT_TRUE(reading);
  EXPECT_EQ(reading->rss_bytes, 0U);
  EXPECT_EQ(reading->cpu_others, 0);
  for (const char* name : {"available_bytes", "read_bytes", "pressure_cpu", "mhz", "threads", "group_bytes", "page_cache_bytes"})
    EXPECT_FALSE(reading->to_json().contains(name));
}

TEST(Sampler, TheRealMachineIsSeenAtLittleCost) {
  Sampler sampler;
  sampler.start();
  sampler.look();
  const auto reading = sampler.take();
  ASSERT_TRUE(reading);
  EXPECT_GT(reading->rss_bytes, 0U);
  EXPECT_GE(sampler.cost(), 0);
}

}  // namespace
}  // namespace millrace::doctor
