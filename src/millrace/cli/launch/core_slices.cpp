#include "millrace/cli/launch/core_slices.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <tuple>

namespace millrace::cli {
namespace {

int topology(int cpu, const char* what, int otherwise) {
  std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/" + what);
  int value = otherwise;
  return file >> value ? value : otherwise;
}

}  // namespace

std::vector<LogicalCpu> usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<LogicalCpu> cpus;
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    cpus.push_back({cpu, topology(cpu, "physical_package_id", 0), topology(cpu, "core_id", cpu), topology(cpu, "die_id", 0)});
  }
  return cpus;
}

std::vector<std::vector<int>> core_slices(std::vector<LogicalCpu> cpus, int ranks) {
  const auto core_of = [](const LogicalCpu& cpu) { return std::tuple(cpu.package, cpu.die, cpu.core); };
  std::ranges::sort(cpus, {}, [&](const LogicalCpu& cpu) { return std::tuple(core_of(cpu), cpu.number); });
  std::vector<std::vector<int>> cores;
  for (std::size_t i = 0; i < cpus.size(); ++i) {
    if (i == 0 || core_of(cpus[i]) != core_of(cpus[i - 1])) cores.emplace_back();
    cores.back().push_back(cpus[i].number);
  }
  const std::size_t each = cores.size() / static_cast<std::size_t>(ranks);
  if (each == 0) return {};
  std::vector<std::vector<int>> slices(static_cast<std::size_t>(ranks));
  for (std::size_t core = 0; core < each * slices.size(); ++core) {
    std::vector<int>& slice = slices[core / each];
    slice.insert(slice.end(), cores[core].begin(), cores[core].end());
  }
  return slices;
}

}  // namespace millrace::cli
