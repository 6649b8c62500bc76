// Helpers that several test files use.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <span>
#include <string>

namespace millrace::data::test {

// Resident memory of this process, in KiB; 0 if /proc does not report it.
inline std::size_t resident_kib() {
  std::ifstream file("/proc/self/statm");
  std::size_t total = 0;
  std::size_t resident = 0;
  file >> total >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) / 1024;
}

inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace millrace::data::test
