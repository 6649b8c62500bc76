#include "millrace/cli/machine/machine_findings.h"

#include <gmock/gmock.h>

#include <functional>

namespace millrace::cli {
namespace {

constexpr std::uint64_t kGigabyte = 1'000'000'000;

// A machine without faults.
MachineView whole_machine() {
  MachineView machine;
  machine.cpu.avx2 = machine.cpu.avx512 = true;
  machine.resources = {.machine_cpus = 8,
                       .allowed_cpus = 8,
                       .cpu_quota = {},
                       .machine_memory = 32 * kGigabyte,
                       .available_memory = 30 * kGigabyte,
                       .group_memory = {},
                       .address_space = {},
                       .has_nvidia_gpu = false};
  machine.cuda = "no NVIDIA driver";
  machine.folders = {{.what = "cache folder", .path = "/c", .free_bytes = 100 * kGigabyte, .is_writable = true}};
  return machine;
}

struct Case {
  const char* id;
  std::function<void(MachineView&)> change;
  const char* said;
};

// Each fault must lead to its finding, and a machine without faults to no finding.
TEST(MachineFindings, EachComesOfItsCauseAlone) {
  EXPECT_THAT(findings_of(whole_machine()), testing::IsEmpty());
  const std::vector<Case> cases = {
      {"folder_read_only", [](MachineView& m) { m.folders[0].is_writable = false; }, "cache folder can't be written to: /c"},
      {"disk_low", [](MachineView& m) { m.folders[0].free_bytes = kGigabyte; }, "1.0 GB are free in the cache folder"},
      {"disk_slow", [](MachineView& m) { m.folders[0].write_rate = 2e6; }, "the cache folder writes 2.0 MB a second"},
      {"disk_slow", [](MachineView& m) { m.folders[0].read_rate = 2e6; }, "the cache folder reads 2.0 MB a second"},
      {"neighbours",
       [](MachineView& m) {
         m.busy_cores = 3;
         m.busiest = "cc1plus (7) 2 cores";
       },
       "use 3 cores, most of it cc1plus"},
      {"clock_low",
       [](MachineView& m) {
         m.mhz = 800;
         m.most_mhz = 3600;
       },
       "at 800 of 3600 MHz"},
      {"gpu_taken",
       [](MachineView& m) { m.gpu.gpus = {{.name = "x", .memory_used = 30 * kGigabyte, .memory_total = 80 * kGigabyte}}; },
       "use GPU 0: 0 % of its time, 38 % of its memory"},
      {"gpu_held_back",
       [](MachineView& m) { m.gpu.gpus = {{.name = "x", .mhz = 900, .most_mhz = 1980, .held_back = {"heat (driver)"}}}; },
       "GPU 0 runs at 900 of 1980 MHz: heat (driver)"},
      {"shared_memory_low", [](MachineView& m) { m.shared_memory = std::uint64_t{64} << 20U; }, "free in /dev/shm"},
      {"ranks_unmet", [](MachineView& m) { m.ranks_failure = "no way"; }, "could not meet: no way"},
      {"port_taken", [](MachineView& m) { m.taken_port = 29500; }, "port 29500 is taken"},
      {"open_files", [](MachineView& m) { m.open_files = 64; }, "may open 64 files"},
      {"gpu_unused", [](MachineView& m) { m.resources.has_nvidia_gpu = true; }, "not used: no NVIDIA driver"},
      {"cpu_quota", [](MachineView& m) { m.resources.cpu_quota = 1.5; }, "CPU time to that of 1.5 of 8 CPUs"},
      {"cpu_affinity", [](MachineView& m) { m.resources.allowed_cpus = 1; }, "1 CPU of the machine's 8"},
      {"cpu_instructions", [](MachineView& m) { m.asked_instructions = "MILLRACE_CPU=avx2"; }, "MILLRACE_CPU=avx2 leaves"},
      {"cpu_instructions", [](MachineView& m) { m.cpu.avx2 = false; }, "no AVX2"},
      {"memory_low", [](MachineView& m) { m.resources.available_memory = kGigabyte; }, "1.0 GB of memory are free"},
      {"address_space", [](MachineView& m) { m.resources.address_space = 4 * kGigabyte; }, "limited to 4.0 GB"}};
  for (const Case& row : cases) {
    MachineView machine = whole_machine();
    row.change(machine);
    const std::vector<Finding> found = findings_of(machine);
    ASSERT_EQ(found.size(), 1U) << row.id;
    EXPECT_EQ(found[0].id, row.id);
    EXPECT_THAT(found[0].what, testing::HasSubstr(row.said));
    EXPECT_FALSE(found[0].next.empty());
  }
}

TEST(MachineFindings, AWholeMachineHasNone) {
  MachineView machine = whole_machine();
  machine.cpu.physical_cores = 8;
  machine.busy_cores = 0.5;
  machine.mhz = machine.most_mhz = 3600;
  machine.open_files = 1024;
  machine.folders[0].write_rate = machine.folders[0].read_rate = 1e9;
  EXPECT_TRUE(findings_of(machine).empty());
}

TEST(MachineFindings, WhatStopsRunsComesFirst) {
  MachineView machine = whole_machine();
  machine.resources.allowed_cpus = 2;
  machine.folders.push_back({.what = "current folder", .path = ".", .free_bytes = 100 * kGigabyte, .is_writable = false});
  const std::vector<Finding> found = findings_of(machine);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_TRUE(found[0].stops_runs);
  EXPECT_FALSE(found[1].stops_runs);
}

}  // namespace
}  // namespace millrace::cli
