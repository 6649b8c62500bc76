#include "millrace/system/machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <thread>
#include <vector>

#include "millrace/system/process_limits.h"

namespace millrace {

namespace fs = std::filesystem;

namespace {

constexpr std::streamsize kLongestFile = 1 << 16;  // long enough for the first processor of /proc/cpuinfo

std::optional<std::uint64_t> to_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr == text.data()) return std::nullopt;
  return value;
}

template <class T>
void keep_least(std::optional<T>& least, std::optional<T> value) {
  if (value && (!least || *value < *least)) least = value;
}

}  // namespace

std::string Machine::read(const fs::path& path) const {
  std::ifstream file(root_ / path.relative_path(), std::ios::binary);
  std::string text(static_cast<std::size_t>(kLongestFile), '\0');
  file.read(text.data(), kLongestFile);
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

std::optional<std::uint64_t> Machine::number_after(const fs::path& path, const std::string& key) const {
  std::istringstream lines(read(path));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t digit = line.find_first_not_of(" \t:", key.size());
    if (digit != std::string::npos && digit > key.size()) return to_number(std::string_view(line).substr(digit));
  }
  return std::nullopt;
}

std::string Machine::cpu_name() const {
  std::istringstream lines(read("proc/cpuinfo"));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "";
}

std::set<std::string> Machine::cpu_flags() const {
  std::istringstream lines(read("proc/cpuinfo"));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(':');
    if (!line.starts_with("flags") || colon == std::string::npos) continue;
    std::istringstream words(line.substr(colon + 1));
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
}

int Machine::physical_cores(std::span<const int> logical) const {
  std::set<std::string> cores;
  for (const int cpu : logical) {
    const fs::path topology = fs::path("sys/devices/system/cpu") / ("cpu" + std::to_string(cpu)) / "topology";
    const std::string package = read(topology / "physical_package_id"), core = read(topology / "core_id");
    std::string place = package + "/";
    place.append(read(topology / "die_id")).append("/").append(core);  // older kernels report no die, and the text is then ""
    cores.insert(core.empty() || package.empty() ? "cpu" + std::to_string(cpu) : place);
  }
  return std::max(1, static_cast<int>(cores.size()));
}

std::vector<fs::path> Machine::groups(const std::string& controller) const {
  std::vector<fs::path> folders;
  std::istringstream lines(read("proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {  // a line is "4:cpu,cpuacct:/a/b" (version 1) or "0::/a/b" (version 2)
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    fs::path mount = "sys/fs/cgroup";
    if (!controllers.empty()) {
      if (("," + controllers + ",").find("," + controller + ",") == std::string::npos) continue;
      mount /= controller;  // the folder may be a link, such as the link cpu to cpu,cpuacct
    }
    // Inside a container the outer part of the path is not mounted, so the levels there seem unlimited.
    fs::path inner = fs::path(line.substr(second + 1)).relative_path();
    for (; !inner.empty(); inner = inner.parent_path()) folders.push_back(mount / inner);
    folders.push_back(mount);
  }
  return folders;
}

std::optional<double> Machine::cpu_quota() const {
  std::optional<double> least;
  for (const fs::path& folder : groups("cpu")) {
    std::istringstream line(read(folder / "cpu.max"));
    std::string quota;
    std::string period;
    line >> quota >> period;
    if (quota.empty()) {
      quota = read(folder / "cpu.cfs_quota_us");
      period = read(folder / "cpu.cfs_period_us");
    }
    const auto numerator = to_number(quota);  // "max" and "-1" are not numbers and mean no limit
    const auto denominator = to_number(period);
    if (numerator && denominator && *denominator > 0) {
      keep_least<double>(least, static_cast<double>(*numerator) / static_cast<double>(*denominator));
    }
  }
  return least;
}

double Machine::throttled_seconds() const {
  double seconds = 0;
  for (const fs::path& folder : groups("cpu")) {
    const fs::path file = folder / "cpu.stat";
    if (const auto microseconds = number_after(file, "throttled_usec")) {
      seconds += 1e-6 * static_cast<double>(*microseconds);
    } else if (const auto nanoseconds = number_after(file, "throttled_time")) {  // written by control groups of version 1
      seconds += 1e-9 * static_cast<double>(*nanoseconds);
    }
  }
  return seconds;
}

std::optional<std::uint64_t> Machine::available_memory() const {
  std::optional<std::uint64_t> least;
  if (const auto kilobytes = number_after("proc/meminfo", "MemAvailable")) least = *kilobytes * 1024;
  for (const fs::path& folder : groups("memory")) {
    auto limit = to_number(read(folder / "memory.max"));
    // Counts memory.high as a limit, because the kernel makes a process above it wait so long that it hardly advances.
    keep_least<std::uint64_t>(limit, to_number(read(folder / "memory.high")));
    auto used = to_number(read(folder / "memory.current"));
    auto cache = number_after(folder / "memory.stat", "inactive_file");
    if (!used) {
      limit = to_number(read(folder / "memory.limit_in_bytes"));
      used = to_number(read(folder / "memory.usage_in_bytes"));
      cache = number_after(folder / "memory.stat", "total_inactive_file");
    }
    if (!limit || !used) continue;
    // The kernel drops unused file pages before anything else, so these pages do not count as used.
    const std::uint64_t kept = *used - std::min(*used, cache.value_or(0));
    keep_least<std::uint64_t>(least, *limit - std::min(*limit, kept));
  }
  return least;
}

std::optional<std::uint64_t> Machine::memory_limit() const {
  constexpr std::uint64_t kNone = std::uint64_t{1} << 60U;  // version 1 of control groups writes "no limit" as a large number
  std::optional<std::uint64_t> least;
  for (const fs::path& folder : groups("memory")) {
    for (const char* const file : {"memory.max", "memory.high", "memory.limit_in_bytes"}) {
      const auto limit = to_number(read(folder / file));
      if (limit && *limit < kNone) keep_least<std::uint64_t>(least, limit);
    }
  }
  return least;
}

std::optional<std::uint64_t> Machine::thread_limit() const {
  std::optional<std::uint64_t> least;
  for (const fs::path& folder : groups("pids")) keep_least<std::uint64_t>(least, to_number(read(folder / "pids.max")));
  return least;
}

bool Machine::has_nvidia_gpu() const {
  std::error_code ignored;
  const fs::directory_iterator gpus(root_ / "proc/driver/nvidia/gpus", ignored);
  return gpus != fs::directory_iterator() || fs::exists(root_ / "dev/nvidia0", ignored);
}

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  for (int size = CPU_SETSIZE; size <= (1 << 20); size *= 4) {  // the call fails until the set is large enough for the machine
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(static_cast<std::size_t>(size)),
                                                               [](cpu_set_t* memory) { CPU_FREE(memory); });
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(size));
    if (!set || sched_getaffinity(0, bytes, set.get()) != 0) continue;
    for (int cpu = 0; cpu < size; ++cpu) {
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, set.get())) cpus.push_back(cpu);
    }
    break;
  }
  if (cpus.empty()) cpus.resize(std::max(1U, std::thread::hardware_concurrency()));
  return cpus;
}

std::uint64_t available_memory_bytes() {
  const auto free_pages = [] {
    return static_cast<std::uint64_t>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  };
  const auto available = Machine().available_memory();
  const std::uint64_t bytes = available ? *available : free_pages();
  const std::optional<std::uint64_t> mappable = address_space_left();
  return mappable ? std::min(bytes, *mappable - std::min(*mappable, kept_address_space())) : bytes;
}

}  // namespace millrace
