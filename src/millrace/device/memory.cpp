#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

#include "millrace/device/detail/machine.h"
#include "millrace/device/device.h"
#include "millrace/system/process_limits.h"

namespace millrace::device {

namespace {

// The number in a line "<key>:   123 kB" of /proc/self/status. getrusage() also has the peak, but its value survives exec: a
// small program that a large one started would report the large one's peak.
std::uint64_t status_bytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key + ":")) return std::stoull(line.substr(key.size() + 1)) * 1024;
  }
  return 0;
}

}  // namespace

std::uint64_t peak_resident_bytes() { return status_bytes("VmHWM"); }
std::uint64_t resident_bytes() { return status_bytes("VmRSS"); }

std::uint64_t private_resident_bytes() {
  static const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  std::ifstream numbers("/proc/self/statm");
  std::uint64_t size = 0;
  std::uint64_t resident = 0;
  std::uint64_t shared = 0;
  numbers >> size >> resident >> shared;
  return (resident - std::min(resident, shared)) * page;
}

std::uint64_t available_memory_bytes() {
  const auto free_pages = [] {
    return static_cast<std::uint64_t>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  };
  const auto available = detail::Machine().available_memory();
  const std::uint64_t bytes = available ? *available : free_pages();
  const std::optional<std::uint64_t> mappable = address_space_left();
  return mappable ? std::min(bytes, *mappable - std::min(*mappable, kept_address_space())) : bytes;
}

void keep_freed_memory() noexcept {
  // Takes large blocks from the heap instead of separate mappings, and never returns the heap's end. M_MMAP_THRESHOLD would do
  // the same, but is limited to 2 GB and, in older glibc, to 32 MB.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
}

}  // namespace millrace::device
