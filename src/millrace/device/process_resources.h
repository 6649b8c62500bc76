// The machine's resources, and the part of them that this process was given.
#pragma once

#include <cstdint>
#include <optional>

namespace millrace::device {

struct ProcessResources {
  int machine_cpus = 1;             // logical, online
  int allowed_cpus = 1;             // logical, by affinity
  std::optional<double> cpu_quota;  // CPUs' worth of time that the control groups allow; nullopt = no limit
  std::uint64_t machine_memory = 0, available_memory = 0;  // bytes
  std::optional<std::uint64_t> group_memory;               // limit of the tightest control group
  std::optional<std::uint64_t> address_space;              // ulimit -v
  bool has_nvidia_gpu = false;                             // even if no driver or library can use it
};
// Read anew at each call. Any thread; never throws because of the contents of /proc and /sys.
[[nodiscard]] ProcessResources process_resources();

}  // namespace millrace::device
