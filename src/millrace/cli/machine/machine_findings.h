// Finds what keeps a machine from training at its full speed.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "millrace/device/device.h"
#include "millrace/device/process_resources.h"
#include "millrace/doctor/nvml.h"

namespace millrace::cli {

// The input of all findings.
struct MachineView {
  struct FolderRoom {
    std::string what;  // "cache folder"
    std::filesystem::path path;
    std::uint64_t free_bytes = 0;
    bool is_writable = true;
    std::optional<double> write_rate = {}, read_rate = {};  // bytes per second to and from the disk; not measured for all folders
  };

  // State of the GPUs, from their driver.
  struct GpuView {
    std::string driver;                       // the driver's version; "" = no driver answers
    std::string silence;                      // why the driver does not answer, in one sentence
    std::string visible;                      // CUDA_VISIBLE_DEVICES; "" = not set
    std::vector<doctor::Nvml::Reading> gpus;  // GPUs that a run may see
  };

  device::Cpu cpu;
  device::ProcessResources resources;
  std::string cuda;  // why no GPU is used; "" = a GPU is used
  std::string asked_instructions;
  std::vector<FolderRoom> folders;
  double busy_cores = 0;                          // cores used by other programs
  std::string busiest;                            // "python3 (4711) 1.9 cores"; "" = no program is busy
  std::optional<double> mhz = {}, most_mhz = {};  // clock of a busy core, and its maximum
  std::optional<std::uint64_t> open_files = {};   // ulimit -n; nullopt: no limit
  GpuView gpu = {};
  std::optional<std::uint64_t> shared_memory = {};  // free bytes in /dev/shm; nullopt if it does not exist
  std::string ranks_failure = {};                   // why two ranks on this machine could not meet; "" = they could
  int taken_port = 0;                               // a launcher's default port if it is in use; 0 = it is free
};

struct Finding {
  bool stops_runs = false;  // false: runs are only slower or smaller than possible
  std::string row;          // row of the machine's table that the finding is about: "memory"
  std::string id, what, next;
};
// Sorted by importance.
[[nodiscard]] std::vector<Finding> findings_of(const MachineView& machine);

}  // namespace millrace::cli
