// What of a machine stands in the way of training at its full speed.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "millrace/device/device.h"
#include "millrace/device/process_resources.h"
#include "millrace/doctor/nvml.h"

namespace millrace::cli {

struct FolderRoom {
  std::string what;  // "cache folder"
  std::filesystem::path path;
  std::uint64_t free_bytes = 0;
  bool is_writable = true;
  std::optional<double> write_rate = {}, read_rate = {};  // bytes a second: to the disk, from it; not measured of all folders
};

// What the GPUs' driver tells.
struct GpuView {
  std::string driver;                    // its version; "" = no driver tells
  std::string silence;                   // why it does not, one sentence
  std::string visible;                   // CUDA_VISIBLE_DEVICES, "" = not set
  std::vector<doctor::GpuReading> gpus;  // that a run may see
};

// All that findings are made of.
struct MachineView {
  device::Cpu cpu;
  device::ProcessResources resources;
  std::string cuda;  // why no GPU is used; "" = one is
  std::string asked_instructions;
  std::vector<FolderRoom> folders;
  double busy_cores = 0;                          // of other programs
  std::string busiest;                            // "python3 (4711) 1.9 cores"; "" = nobody is
  std::optional<double> mhz = {}, most_mhz = {};  // of a core at work, and what it could do
  std::optional<std::uint64_t> open_files = {};   // ulimit -n; nullopt: no limit
  GpuView gpu = {};
  std::optional<std::uint64_t> shared_memory = {};  // free in /dev/shm; nullopt: there is none
  std::string ranks_failure = {};                   // why two ranks of this machine could not meet; "" = they could
  int taken_port = 0;                               // of a launcher's usual ones; 0 = it is free
};

struct Finding {
  bool stops_runs = false;  // else runs are slower or smaller than they could be
  std::string row;          // of the table of the machine that it is about: "memory"
  std::string id, what, next;
};
// In the order of their weight.
[[nodiscard]] std::vector<Finding> findings_of(const MachineView& machine);

}  // namespace millrace::cli
