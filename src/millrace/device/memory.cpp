#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "millrace/device/device.h"

namespace millrace::device {

namespace {

// Returns the number in a line "<key>:   123 kB" of /proc/self/status. getrusage() also reports the peak, but its value survives
// exec, so a small program would report the peak of the large program that started it.
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

void keep_freed_memory() noexcept {
  // Allocates large blocks from the heap instead of separate mappings, and never returns the end of the heap to the system.
  // M_MMAP_THRESHOLD would do the same, but is limited to 2 GB and, in older glibc, to 32 MB.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
}

}  // namespace millrace::device
