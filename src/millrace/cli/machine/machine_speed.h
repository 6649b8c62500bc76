// Measures how fast the machine is. This takes a second or two.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace millrace::cli {

struct DiskRates {
  double write = 0, read = 0;  // bytes per second to and from the disk
};
// Measures with a temporary file in `folder`. nullopt if the file can't be made, or if the disk has too little free space.
[[nodiscard]] std::optional<DiskRates> measure_disk(const std::filesystem::path& folder);

struct FormatRate {
  std::string work;           // "matrix product", "3-d convolution"
  double fp32 = 0, bf16 = 0;  // operations per second with the current number of threads (device::set_threads)
};
[[nodiscard]] std::vector<FormatRate> measure_formats();

// How much other programs used the machine during a quarter of a second, and the clock of a busy core in that time.
struct Neighbourhood {
  double busy_cores = 0;
  std::string busiest;  // such as "python3 (4711) 1.9 cores"; "" = no program used a twentieth of a core
  // The clock of this thread's core, and its maximum. nullopt if the system moved the thread to another core, or reports no
  // clock.
  std::optional<double> mhz, most_mhz;
};
[[nodiscard]] Neighbourhood watch_neighbours();
// The clock of CPU number `cpu`, from the text of /proc/cpuinfo.
[[nodiscard]] std::optional<double> mhz_of_cpu(std::istream& cpuinfo, int cpu);

}  // namespace millrace::cli
