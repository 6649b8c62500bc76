// Finds the reasons why a machine trains slower than it could, or not at all.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "millrace/device/device.h"
#include "millrace/device/process_resources.h"
#include "millrace/doctor/nvml.h"

namespace millrace::cli {

// The facts about a machine from which the findings are made.
struct MachineView {
  struct FolderRoom {
    std::string what;  // such as "cache folder"
    std::filesystem::path path;
    std::uint64_t free_bytes = 0;
    bool is_writable = true;
    std::optional<double> write_rate = {}, read_rate = {};  // bytes per second to and from the disk; nullopt: not measured for
                                                            // this folder
  };

  // The GPUs as their driver reports them.
  struct GpuView {
    std::string driver;                       // version of the driver; "" = the driver does not answer
    std::string silence;                      // why the driver does not answer, in a sentence
    std::string visible;                      // CUDA_VISIBLE_DEVICES; "" = not set
    std::vector<doctor::Nvml::Reading> gpus;  // the GPUs that a run may use
  };

  device::Cpu cpu;
  device::ProcessResources resources;
  std::string cuda;  // why a run would not use a GPU; "" = it would use one
  std::string asked_instructions;
  std::vector<FolderRoom> folders;
  double busy_cores = 0;  // number of cores that other programs use
  std::string busiest;    // the program that uses the most cores, such as "python3 (4711) 1.9 cores"; "" = there is none
  std::optional<double> mhz = {}, most_mhz = {};  // clock of a busy core, and its maximum
  std::optional<std::uint64_t> open_files = {};   // ulimit -n; nullopt: no limit
  GpuView gpu = {};
  std::optional<std::uint64_t> shared_memory = {};  // free bytes in /dev/shm; nullopt: it does not exist
  std::string ranks_failure = {};                   // why two ranks on this machine could not meet; "" = they could
  int taken_port = 0;                               // the default port of launchers if it is in use; 0 = it is free
};

struct Finding {
  bool stops_runs = false;  // true: runs will fail; false: runs are only slower or smaller than possible
  std::string row;          // the row of the printed table that the finding is about, such as "memory"
  std::string id, what, next;
};
// The findings, the most important first.
[[nodiscard]] std::vector<Finding> findings_of(const MachineView& machine);

}  // namespace millrace::cli
