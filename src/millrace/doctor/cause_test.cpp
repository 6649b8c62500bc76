#include "millrace/doctor/cause.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>

namespace millrace::doctor {
namespace {

using testing::HasSubstr;

SystemMark mark() { return {.group = "", .boot = "b1", .group_kills = 2, .machine_kills = 5, .group_limit = 2'000'000'000}; }

// The log of a process that began and made steps.
std::vector<Json> begun() {
  return {{{"kind", "start"}, {"system", mark().to_json()}},
          {{"kind", "step"}, {"step", 1200}},
          {{"kind", "machine"}, {"rss_bytes", 1'900'000'000}, {"available_bytes", 40'000'000}}};
}
std::vector<Json> with(Json line) {
  std::vector<Json> lines = begun();
  lines.push_back(std::move(line));
  return lines;
}

void expect_cause(const std::vector<Json>& lines, const SystemMark& now, const std::string& id, const std::string& text) {
  const Cause cause = cause_of(lines, /*alive=*/false, now);
  EXPECT_EQ(cause.id, id) << cause.text;
  EXPECT_THAT(cause.text, HasSubstr(text));
  EXPECT_EQ(cause.step, 1200);
  EXPECT_EQ(cause.is_death, id != "finished" && id != "stopped");
}

TEST(Cause, EachWayToEndIsTold) {
  expect_cause(with({{"kind", "end"}, {"exit_reason", "max_steps"}}), mark(), "finished", "finished at step 1,200 (max_steps)");
  expect_cause(with({{"kind", "end"}, {"exit_reason", "signal"}, {"signal", "SIGTERM"}, {"sender", "process 7 (slurmd)"}}),
               mark(), "stopped", "stopped by SIGTERM from process 7 (slurmd) at step 1,200, and saved");
  const auto error = [](const char* text) { return with({{"kind", "end"}, {"exit_reason", "error"}, {"error", text}}); };
  expect_cause(error("DataError  a.h5 ends early\n  where x"), mark(), "failed", "of bad data: DataError  a.h5 ends early");
  expect_cause(error("TrainingDiverged  the loss"), mark(), "failed", "of divergence: ");
  expect_cause(error("write x: No space left on device"), mark(), "failed", "of a full disk: ");
  expect_cause(error("SnapshotError  can't save the snapshot of step 1,200: it needs 9 bytes, but only 3 are free"), mark(),
               "failed", "of a full disk: ");
  expect_cause(error("something else"), mark(), "failed", "of an error: something else");
  expect_cause(with({{"kind", "crash"}, {"text", "a segmentation fault (SIGSEGV) in step 7"}}), mark(), "crashed",
               "of a segmentation fault (SIGSEGV) in step 7");
  SystemMark now = mark();
  now.boot = "b2";
  expect_cause(begun(), now, "rebooted", "the machine has restarted since");
  now = mark();
  now.group_kills = 3;
  expect_cause(begun(), now, "out_of_memory",
               "its control group had used up its 2.0 GB of memory; when last checked, the process held 1.9 GB and 40 MB");
  now = mark();
  now.machine_kills = 6;
  expect_cause(begun(), now, "out_of_memory", "probably killed by the kernel for lack of memory");
  expect_cause(begun(), mark(), "killed", "SIGKILL");
}

constexpr const char* kStill = "the run has not moved for 60 s\n  where    step 1,201, backward of generator\n  next     wait";

TEST(Cause, AScriptSavesForItself) {
  const auto script = [](Json end) {
    std::vector<Json> lines = with(std::move(end));
    lines.front()["script"] = "train.py";
    return cause_of(lines, /*alive=*/false, mark()).text;
  };
  EXPECT_EQ(script({{"kind", "end"}, {"exit_reason", "end"}}), "finished at step 1,200");
  EXPECT_EQ(script({{"kind", "end"}, {"exit_reason", "signal"}, {"signal", "SIGINT"}}), "stopped by SIGINT at step 1,200");
  EXPECT_EQ(script({{"kind", "end"}, {"exit_reason", "error"}, {"error", "exit code 3"}}),
            "died at step 1,200 of an error: exit code 3");
}

TEST(Cause, AStandstillIsToldWithItsPlaceWhoeverEndedIt) {
  const std::string where = ": the run has not moved for 60 s (step 1,201, backward of generator)";
  std::vector<Json> lines = with({{"kind", "hang"}, {"text", kStill}});
  expect_cause(lines, mark(), "hung", "it had made no more progress, and somebody killed it" + where);
  lines.push_back({{"kind", "signal"}, {"text", "a second signal to stop (SIGINT) in step 1,201"}});
  expect_cause(lines, mark(), "hung", "and a second signal to stop (SIGINT) in step 1,201 ended it" + where);
  lines.back() = {{"kind", "hang"},
                  {"text", "stopped by SIGTERM in a step that has not moved for 70 s: steps after the last snapshot are lost"}};
  expect_cause(lines, mark(), "hung", "it had made no more progress, and was stopped by SIGTERM" + where);
  lines.back() = {{"kind", "hang"}, {"text", "the run moves again after 70 s"}};
  expect_cause(lines, mark(), "killed", "somebody killed it (SIGKILL");
  lines = with({{"kind", "hang"}, {"text", kStill}});
  lines.push_back({{"kind", "step"}, {"step", 1200}});
  expect_cause(lines, mark(), "killed", "somebody killed it (SIGKILL");
}

TEST(Cause, ASignalThatLeftALineIsNamed) {
  expect_cause(with({{"kind", "signal"}, {"text", "the limit on its CPU time (SIGXCPU, ulimit -t) in step 1,201, forward"}}),
               mark(), "killed",
               "died after step 1,200 of the limit on its CPU time (SIGXCPU, ulimit -t) in step 1,201, forward");
}

TEST(Cause, AnErrorOfMemoryOrOfADiskIsOne) {
  const auto error = [](const char* text) { return with({{"kind", "end"}, {"exit_reason", "error"}, {"error", text}}); };
  for (const char* text : {"std::bad_alloc", "DeviceError  out of memory with one sample at a time: std::bad_alloc",
                           "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried",
                           "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has"})
    expect_cause(error(text), mark(), "out_of_memory", std::string("for lack of memory: ") + text);
  expect_cause(error("DataError  a.h5 can't be read: std::bad_alloc"), mark(), "failed", "of bad data: ");
  expect_cause(error("write x: Disk quota exceeded"), mark(), "failed", "of a full disk: ");
  expect_cause(error("SnapshotError  can't save: write x: File too large"), mark(), "failed",
               "on the size of a file (ulimit -f): ");
}

TEST(Cause, TheLaunchersLineSaysWhichRankItWas) {
  const auto rank = [](const char* text) { return Json{{"kind", "rank"}, {"text", text}}; };
  expect_cause(with(rank("rank 1 has not moved for 300 s, step 1,201, forward")), mark(), "hung",
               "the launcher ended all ranks, because rank 1 has not moved for 300 s, step 1,201, forward");
  expect_cause(with(rank("rank 1 is frozen (SIGSTOP) for 300 s")), mark(), "hung", "because rank 1 is frozen");
  expect_cause(with(rank("rank 1 was killed by SIGKILL, step 7")), mark(), "killed",
               "because rank 1 was killed by SIGKILL, step 7");
  SystemMark now = mark();
  now.machine_kills = 6;
  expect_cause(
      with(rank("rank 1 was killed by SIGKILL")), now, "out_of_memory",
      "1 process on this machine since the run began; the launcher says: rank 1 was killed by SIGKILL; when last checked");
  std::vector<Json> lines = with({{"kind", "end"}, {"exit_reason", "error"}, {"error", "DistributedError  rank 0 lost rank 1"}});
  lines.push_back(rank("rank 1 was killed by SIGSEGV, step 7"));
  expect_cause(lines, mark(), "failed", "rank 0 lost rank 1; the launcher says: rank 1 was killed by SIGSEGV, step 7");
  lines = with({{"kind", "end"}, {"exit_reason", "error"}, {"error", "DataError  a.h5 ends early"}});
  lines.push_back(rank("rank 0 failed with exit code 1"));
  EXPECT_THAT(cause_of(lines, false, mark()).text, testing::Not(HasSubstr("launcher")));
}

TEST(Cause, ARunThatGoesOnSaysWhereItIs) {
  EXPECT_EQ(cause_of(begun(), true, mark()).text, "still running, step 1,200");
  EXPECT_THAT(cause_of(with({{"kind", "hang"}, {"text", kStill}}), true, mark()).text,
              HasSubstr("it has made no progress since: the run has not moved for 60 s (step 1,201, backward of generator)"));
  EXPECT_EQ(cause_of(with({{"kind", "hang"}, {"text", "the run moves again after 70 s"}}), true, mark()).text,
            "still running, step 1,200");
}

TEST(Cause, AnotherMachineDoesNotCountAsARestart) {
  SystemMark now = mark();
  now.boot = "b2";
  std::vector<Json> lines = begun();
  lines.front()["system"]["host"] = "node7.cluster";
  expect_cause(lines, now, "unknown", "died after step 1,200 without a message, on machine node7.cluster: only that machine");
  EXPECT_THAT(cause_of(lines, false, now).text, testing::Not(HasSubstr("restarted since")));
  now.machine_kills = 60;
  expect_cause(lines, now, "unknown", "when last checked, the process held 1.9 GB");
  now.boot = mark().boot;  // the same machine under another name, as in a new container
  expect_cause(lines, now, "out_of_memory", "probably killed by the kernel for lack of memory");
}

TEST(Cause, MemoryIsNotRuledOutWithoutACount) {
  std::vector<Json> lines = begun();
  for (const char* count : {"group_kills", "machine_kills"}) lines.front()["system"].erase(std::string(count));
  SystemMark now = mark();
  now.group_kills.reset();
  now.machine_kills.reset();
  expect_cause(lines, now, "killed", "or memory ran out, which this system does not count");
  EXPECT_THAT(cause_of(begun(), false, mark()).text, HasSubstr("memory had not run out"));
}

TEST(Cause, AnOlderLogIsNoReasonToGuess) {
  const std::vector<Json> lines = {{{"kind", "start"}}, {{"kind", "step"}, {"step", 1200}}};
  expect_cause(lines, mark(), "unknown", "without a message");
}

TEST(Cause, HostileLinesAreNone) {
  const std::string log =
      "{\"kind\":\"start\",\"system\":7}\nnot json\n[1,2]\n{\"kind\":5,\"step\":\"x\"}\n{\"kind\":\"step\",\"step\":1e300}\n"
      "{\"kind\":\"start\"}\n{\"kind\":\"end\",\"exit_reason\":3}\n{\"kind\":\"step\",\"st";
  const auto processes = processes_in(log);
  ASSERT_EQ(processes.size(), 2U);
  EXPECT_EQ(cause_of(processes[0], false, mark()).id, "unknown");
  EXPECT_EQ(cause_of(processes[1], false, mark()).id, "finished");
  EXPECT_EQ(group_of(processes[0]), "");
  EXPECT_TRUE(processes_in("").empty());
  const Json strange = {{"boot", 4}, {"group_kills", "x"}, {"group_limit", -1}};
  EXPECT_FALSE(SystemMark::of(strange).group_kills);
  EXPECT_FALSE(SystemMark::of(strange).group_limit);
  const std::string deep(500'000, '[');
  const auto after_deep =
      processes_in("{\"kind\": \"start\"}\n{\"kind\": \"step\", \"accounts\": " + deep + "\n{\"kind\": \"end\"}\n");
  ASSERT_EQ(after_deep.size(), 1U);
  EXPECT_EQ(after_deep[0].size(), 2U);
}

class Groups : public testing::Test {
 protected:
  Groups() : root_(testing::TempDir() + "groups-" + std::to_string(::getpid())) {}
  ~Groups() override { std::filesystem::remove_all(root_); }
  void write(const std::string& file, const std::string& text) {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  std::filesystem::path root_;
};

TEST_F(Groups, OfTheSecondVersion) {
  write("proc/self/cgroup", "0::/user/job\n");
  write("proc/sys/kernel/random/boot_id", "abc\n");
  write("proc/vmstat", "pgfault 3\noom_kill 4\n");
  write("sys/fs/cgroup/user/job/memory.events", "low 0\noom 2\noom_kill 1\n");
  write("sys/fs/cgroup/user/job/memory.max", "5000\n");
  const SystemMark mark = system_mark("", root_);
  EXPECT_EQ(mark.boot, "abc");
  EXPECT_EQ(mark.group_kills, 1);
  EXPECT_EQ(mark.machine_kills, 4);
  EXPECT_EQ(mark.group_limit, 5000U);
  EXPECT_EQ(SystemMark::of(mark.to_json()).group, mark.group);
}

TEST_F(Groups, OfTheFirstVersionAndWithoutALimit) {
  write("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/job\n0::/\n");
  write("sys/fs/cgroup/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  const SystemMark mark = system_mark("", root_);
  EXPECT_EQ(mark.group_kills, 3);
  EXPECT_FALSE(mark.group_limit);
  write("sys/fs/cgroup/memory/other/memory.oom_control", "oom_kill 8\n");
  EXPECT_EQ(system_mark((root_ / "sys/fs/cgroup/memory/other").string(), root_).group_kills, 8);
  EXPECT_EQ(system_mark((root_ / "sys/fs/cgroup/../../x").string(), root_).group_kills, 3);
}

}  // namespace
}  // namespace millrace::doctor
