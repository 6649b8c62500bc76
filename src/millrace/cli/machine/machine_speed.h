// Measures the machine's speed, in a second or two.
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
// Measures with a file that is made there and removed; nullopt if it can't be made, or the disk has little room.
[[nodiscard]] std::optional<DiskRates> measure_disk(const std::filesystem::path& folder);

struct FormatRate {
  std::string work;           // "matrix product", "3-d convolution"
  double fp32 = 0, bf16 = 0;  // operations per second, on the current number of threads (device::set_threads)
};
[[nodiscard]] std::vector<FormatRate> measure_formats();

// Other programs' use of the machine over a quarter of a second, and the clock of a busy core meanwhile.
struct Neighbourhood {
  double busy_cores = 0;
  std::string busiest;  // "python3 (4711) 1.9 cores"; "" = no program uses a twentieth of a core
  // The clock of this thread's core, and its maximum; nullopt if the thread moved between cores, or no clock is available.
  std::optional<double> mhz, most_mhz;
};
[[nodiscard]] Neighbourhood watch_neighbours();
// The clock of a CPU with this number, from the text of /proc/cpuinfo.
[[nodiscard]] std::optional<double> mhz_of_cpu(std::istream& cpuinfo, int cpu);

}  // namespace millrace::cli
