#include "millrace/device/process_resources.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "millrace/device/device.h"
#include "millrace/system/machine.h"
#include "millrace/system/process_limits.h"

namespace millrace::device {

ProcessResources process_resources() {
  const Machine machine;
  ProcessResources resources;
  resources.machine_cpus = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  resources.allowed_cpus = static_cast<int>(allowed_cpus().size());
  resources.cpu_quota = machine.cpu_quota();
  resources.machine_memory = static_cast<std::uint64_t>(std::max(0L, sysconf(_SC_PHYS_PAGES))) *
                             static_cast<std::uint64_t>(std::max(0L, sysconf(_SC_PAGESIZE)));
  resources.available_memory = available_memory_bytes();
  if (const auto limit = machine.memory_limit(); limit && *limit < resources.machine_memory) resources.group_memory = limit;
  resources.address_space = limit_of(RLIMIT_AS);
  resources.has_nvidia_gpu = machine.has_nvidia_gpu();
  return resources;
}

}  // namespace millrace::device
