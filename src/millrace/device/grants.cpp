#include "millrace/device/grants.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "millrace/device/detail/machine.h"
#include "millrace/device/device.h"
#include "millrace/system/limits.h"

namespace millrace::device {

Grants grants() {
  const detail::Machine machine;
  Grants grants;
  grants.machine_cpus = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  grants.allowed_cpus = static_cast<int>(detail::allowed_cpus().size());
  grants.cpu_quota = machine.cpu_quota();
  grants.machine_memory = static_cast<std::uint64_t>(std::max(0L, sysconf(_SC_PHYS_PAGES))) *
                          static_cast<std::uint64_t>(std::max(0L, sysconf(_SC_PAGESIZE)));
  grants.available_memory = available_memory_bytes();
  if (const auto limit = machine.memory_limit(); limit && *limit < grants.machine_memory) grants.group_memory = limit;
  grants.address_space = limit_of(RLIMIT_AS);
  grants.has_nvidia_gpu = machine.has_nvidia_gpu();
  return grants;
}

}  // namespace millrace::device
