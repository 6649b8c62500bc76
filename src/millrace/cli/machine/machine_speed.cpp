#include "millrace/cli/machine/machine_speed.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>

#include "millrace/base/clock.h"
#include "millrace/base/format.h"
#include "millrace/base/utf8.h"

namespace millrace::cli {
namespace {

constexpr std::size_t kBlock = std::size_t{4} << 20U;
constexpr int kBlocks = 16;

// The shortest time of three calls. One more call before them warms up.
template <class Work>
double best_seconds(Work work) {
  work();
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 3; ++i) {
    const double began = steady_seconds();
    work();
    best = std::min(best, steady_seconds() - began);
  }
  return best;
}

bool write_blocks(int file, const std::vector<std::byte>& block) {
  for (int i = 0; i < kBlocks; ++i) {
    if (::write(file, block.data(), block.size()) != static_cast<ssize_t>(block.size())) return false;
  }
  return ::fsync(file) == 0;
}

bool read_blocks(int file, std::vector<std::byte>& block) {
  for (int i = 0; i < kBlocks; ++i) {
    if (::pread(file, block.data(), block.size(), static_cast<off_t>(kBlock) * i) != static_cast<ssize_t>(block.size()))
      return false;
  }
  return true;
}

// The CPU time of a process, in seconds.
struct Process {
  std::string name;
  double seconds = 0;
};

std::map<int, Process> processes() {
  std::map<int, Process> all;
  std::error_code error;
  const double tick = 1.0 / static_cast<double>(::sysconf(_SC_CLK_TCK));
  for (std::filesystem::directory_iterator entry("/proc", error), end; !error && entry != end; entry.increment(error)) {
    const std::string id = entry->path().filename();
    if (id.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry->path() / "stat");
    std::string text;
    std::getline(file, text);
    const std::size_t open = text.find('('), close = text.rfind(')');  // the name may contain brackets too
    if (open == std::string::npos || close == std::string::npos || close < open) continue;
    std::istringstream fields(text.substr(close + 2));
    std::string skipped;
    for (int i = 0; i < 11; ++i) fields >> skipped;  // skips the fields from state to cmajflt
    double user = 0, system = 0;
    if (fields >> user >> system) all[std::stoi(id)] = {text.substr(open + 1, close - open - 1), (user + system) * tick};
  }
  return all;
}

std::optional<double> number_in(const std::string& text) {
  std::istringstream in(text);
  double number = 0;
  return in >> number ? std::optional(number) : std::nullopt;
}

// Keeps the core busy for this time, so that its clock reaches the value under load.
void spin(double seconds) {
  const double began = steady_seconds();
  while (steady_seconds() - began < seconds) {
  }
}

// Reads the clock of this thread's core. If the system moved the thread meanwhile, the values stay empty.
void look_at_clock(Neighbourhood& seen) {
  constexpr int kTries = 8;
  constexpr double kWarm = 0.03;  // seconds of work before the clock is read
  for (int i = 0; i < kTries; ++i) {
    const int cpu = ::sched_getcpu();
    spin(kWarm);
    std::ifstream info("/proc/cpuinfo");
    const auto mhz = mhz_of_cpu(info, cpu);
    if (cpu < 0 || ::sched_getcpu() != cpu) continue;
    seen.mhz = mhz;
    std::ifstream most("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cpufreq/cpuinfo_max_freq");
    std::string khz;
    std::getline(most, khz);
    if (const auto number = number_in(khz)) seen.most_mhz = *number / 1e3;
    return;
  }
}

}  // namespace

std::optional<double> mhz_of_cpu(std::istream& cpuinfo, int cpu) {
  std::optional<double> processor;
  for (std::string line; std::getline(cpuinfo, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    if (line.starts_with("processor")) processor = number_in(line.substr(colon + 1));
    if (line.starts_with("cpu MHz") && processor == static_cast<double>(cpu)) return number_in(line.substr(colon + 1));
  }
  return std::nullopt;
}

std::optional<DiskRates> measure_disk(const std::filesystem::path& folder) {
  std::error_code error;
  constexpr std::uint64_t kRoom = 10;  // the disk must have room for this many test files
  const auto space = std::filesystem::space(folder, error);
  if (error || space.available < kRoom * kBlock * kBlocks) return std::nullopt;
  std::string name = (folder / ".millrace-disk-XXXXXX").string();
  const int file = ::mkostemp(name.data(), O_CLOEXEC);
  if (file < 0) return std::nullopt;
  ::unlink(name.c_str());
  std::vector<std::byte> block(kBlock);
  for (std::size_t i = 0; i < block.size(); ++i)
    block[i] = static_cast<std::byte>((i * 2654435761U) >> 13U);  // values that can't be compressed
  std::optional<DiskRates> rates;
  const double began = steady_seconds();
  if (write_blocks(file, block)) {
    const double written = steady_seconds();
    ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);  // without this the file would be read back from memory
    const double read_began = steady_seconds();
    if (read_blocks(file, block)) {
      constexpr auto kBytes = static_cast<double>(kBlock) * kBlocks;
      rates = DiskRates{.write = kBytes / (written - began), .read = kBytes / (steady_seconds() - read_began)};
    }
  }
  ::close(file);
  return rates;
}

std::vector<FormatRate> measure_formats() {
  constexpr std::int64_t kSide = 1024;
  constexpr std::int64_t kChannels = 32, kVoxels = 32;
  constexpr double kProduct = 2.0 * kSide * kSide * kSide;
  constexpr double kConvolution = 2.0 * 27 * kChannels * kChannels * kVoxels * kVoxels * kVoxels;
  std::vector<FormatRate> rates = {{.work = "matrix product"}, {.work = "3-d convolution"}};
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor matrix = at::ones({kSide, kSide}, type);
    const at::Tensor volume =
        at::ones({1, kChannels, kVoxels, kVoxels, kVoxels}, type).contiguous(at::MemoryFormat::ChannelsLast3d);
    const at::Tensor weight = at::ones({kChannels, kChannels, 3, 3, 3}, type).contiguous(at::MemoryFormat::ChannelsLast3d);
    const double product = kProduct / best_seconds([&] { (void)at::mm(matrix, matrix); });
    const std::array<std::int64_t, 3> one = {1, 1, 1};
    const double convolution = kConvolution / best_seconds([&] { (void)at::conv3d(volume, weight, {}, one, one); });
    (type == at::kFloat ? rates[0].fp32 : rates[0].bf16) = product;
    (type == at::kFloat ? rates[1].fp32 : rates[1].bf16) = convolution;
  }
  return rates;
}

Neighbourhood watch_neighbours() {
  constexpr double kMoment = 0.25;
  constexpr double kLeast = 0.05;  // share of a core; programs that use less are not named
  const std::map<int, Process> before = processes();
  const double began = steady_seconds();
  spin(kMoment);
  Neighbourhood seen;
  look_at_clock(seen);
  const double seconds = steady_seconds() - began;
  double most = kLeast;
  for (const auto& [id, now] : processes()) {
    const auto then = before.find(id);
    if (id == ::getpid() || then == before.end()) continue;
    const double cores = (now.seconds - then->second.seconds) / seconds;
    seen.busy_cores += std::max(cores, 0.0);
    if (cores <= most) continue;
    most = cores;
    seen.busiest =
        printable(now.name) + " (" + std::to_string(id) + ") " + significant(cores, 2) + (cores == 1 ? " core" : " cores");
  }
  return seen;
}

}  // namespace millrace::cli
