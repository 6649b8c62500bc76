// What the machine has, and what of it this process was given.
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
  bool has_nvidia_gpu = false;                             // whether or not anything can use it
};
// As it is now. Any thread; never throws over what /proc and /sys hold.
[[nodiscard]] ProcessResources process_resources();

}  // namespace millrace::device
