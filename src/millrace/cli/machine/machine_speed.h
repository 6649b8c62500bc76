// What the machine does, measured: a second or two of its time.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace millrace::cli {

struct DiskRates {
  double write = 0, read = 0;  // bytes a second, to and from the disk
};
// By a file that is made there and removed; nullopt when it can't be, or when its disk has little room.
[[nodiscard]] std::optional<DiskRates> measure_disk(const std::filesystem::path& folder);

struct FormatRate {
  std::string work;           // "matrix product", "3-d convolution"
  double fp32 = 0, bf16 = 0;  // operations a second, on the threads that are set (device::set_threads)
};
[[nodiscard]] std::vector<FormatRate> measure_formats();

// Other programs over a moment (a quarter of a second), and a core at work meanwhile.
struct Neighbourhood {
  double busy_cores = 0;
  std::string busiest;                  // "python3 (4711) 1.9 cores"; "" = none uses a twentieth of a core
  std::optional<double> mhz, most_mhz;  // of the core that this thread was on; none: it never stayed on one, or nothing tells
};
[[nodiscard]] Neighbourhood watch_neighbours();
// The clock of a CPU by its number, in the words of /proc/cpuinfo.
[[nodiscard]] std::optional<double> mhz_of_cpu(std::istream& cpuinfo, int cpu);

}  // namespace millrace::cli
