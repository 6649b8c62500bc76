#include "millrace/doctor/script_sampler.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "millrace/base/clock.h"
#include "millrace/doctor/evidence_json.h"

namespace millrace::doctor {
namespace {

// Adds a process to the folder that replaces "/": its CPU time in ticks and, if they are listed, its children.
void add_process(const std::filesystem::path& root, int id, int ticks, const std::optional<std::string>& children) {
  const auto folder = root / "proc" / std::to_string(id);
  std::filesystem::create_directories(folder / "task" / std::to_string(id));
  std::ofstream(folder / "stat") << id << " (py (3)) S 1 1 1 0 -1 0 0 0 0 0 " << ticks << " 1 0 0 20 0";
  if (children) std::ofstream(folder / "task" / std::to_string(id) / "children") << *children;
}

TEST(ScriptSampler, AddsUpAFamilyOfProcesses) {
  const std::filesystem::path root = testing::TempDir() + "family-" + std::to_string(::getpid());
  add_process(root, 10, 99, "11 12 13 ");  // process 13 has ended
  add_process(root, 11, 49, "14 ");
  add_process(root, 12, 29, "");
  add_process(root, 14, 19, "");
  add_process(root, 20, 500, std::nullopt);
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  EXPECT_NEAR(family_cpu_seconds(10, root).value_or(-1), 200 / ticks, 1e-9);
  EXPECT_EQ(family_cpu_seconds(20, root), std::nullopt) << "the system lists no children";
  std::filesystem::remove_all(root);
}

TEST(ScriptSampler, CountsAChildAsItsOwn) {
  if (!family_cpu_seconds(::getpid())) GTEST_SKIP() << "this system lists no children of a process";
  ScriptSampler sampler(nullptr, -1);
  const pid_t child = ::fork();
  if (child == 0) {
    for (const double began = steady_seconds(); steady_seconds() - began < 10;) {
    }
    ::_exit(0);
  }
  Json read;
  for (const double began = steady_seconds(); read["machine"].is_null() && steady_seconds() - began < 8;) {
    ::usleep(100'000);
    read = sampler.read();
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ASSERT_FALSE(read["machine"].is_null());
  EXPECT_GT(read["machine"]["cpu_own"].get<double>(), 0.02) << "this process sleeps, its child does not";
  const Evidence e = evidence_from(read["evidence"]);
  EXPECT_GE(e.cores, 1);
  EXPECT_FALSE(e.on_gpu);
  EXPECT_GT(e.memory.room, e.memory.used);
}

}  // namespace
}  // namespace millrace::doctor
