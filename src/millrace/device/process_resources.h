// The machine's resources, and the part of them that this process may use.
#pragma once

#include <cstdint>
#include <optional>

namespace millrace::device {

struct ProcessResources {
  int machine_cpus = 1;                                    // logical CPUs that are online
  int allowed_cpus = 1;                                    // logical CPUs that the affinity allows
  std::optional<double> cpu_quota;                         // CPU time that the control groups allow, in CPUs; nullopt = no limit
  std::uint64_t machine_memory = 0, available_memory = 0;  // bytes
  std::optional<std::uint64_t> group_memory;               // memory limit of the tightest control group
  std::optional<std::uint64_t> address_space;              // limit of address space (`ulimit -v`)
  bool has_nvidia_gpu = false;                             // also true if no driver or library can use the GPU
};
// Reads the state of the system at each call. Any thread may call it. Never throws because of the contents of /proc and /sys.
[[nodiscard]] ProcessResources process_resources();

}  // namespace millrace::device
