#include "millrace/device/neighbours.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "millrace/system/machine.h"

namespace millrace::device {
namespace {

constexpr double kLeastWork = 0.1;  // a result needs this many seconds of work, because /proc/stat counts hundredths of a second

// Seconds of the CPUs: used by all programs, and available in total. Time that other virtual machines took counts as used.
struct CpuSeconds {
  double used = 0, available = 0;
  int cpus = 0;
};
CpuSeconds cpu_seconds(std::istream& stat, const std::vector<int>& cpus) {
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  CpuSeconds sums;
  for (std::string line; std::getline(stat, line);) {
    std::istringstream fields(line);
    std::string name;
    fields >> name;
    if (name.size() < 4 || !name.starts_with("cpu")) continue;
    if (std::ranges::none_of(cpus, [&](int cpu) { return name == "cpu" + std::to_string(cpu); })) continue;
    std::array<double, 8> counts{};  // user, nice, system, idle, iowait, irq, softirq, steal
    for (double& count : counts) fields >> count;
    if (!fields) return {};
    double all = 0;
    for (const double count : counts) all += count;
    sums.used += (all - counts[3] - counts[4]) / ticks;
    sums.available += all / ticks;
    ++sums.cpus;
  }
  return sums;
}

}  // namespace

Neighbours::Neighbours() : Neighbours("/", allowed_cpus()) {}

Neighbours::Neighbours(std::filesystem::path root, std::vector<int> cpus) : root_(std::move(root)), cpus_(std::move(cpus)) {
  first_ = last_ = now();
}

std::optional<Neighbours::Counts> Neighbours::now() const {
  Counts counts;
  std::error_code failed;
  bool any = false;
  std::filesystem::directory_iterator thread(root_ / "proc/self/task", failed);
  for (; !failed && thread != std::filesystem::directory_iterator(); thread.increment(failed)) {
    std::ifstream file(thread->path() / "schedstat");
    double ran = 0, waited = 0;              // nanoseconds
    if (!(file >> ran >> waited)) continue;  // the thread has ended
    counts.ran += ran * 1e-9;
    counts.waited += waited * 1e-9;
    any = true;
  }
  std::ifstream stat(root_ / "proc/stat");
  const CpuSeconds cpus = cpu_seconds(stat, cpus_);
  if (!any || cpus.cpus == 0) return std::nullopt;
  counts.held = Machine(root_).throttled_seconds();
  counts.used = cpus.used;
  counts.available = cpus.available;
  counts.passed = cpus.available / cpus.cpus;
  return counts;
}

double Neighbours::Taken::share() const noexcept { return std::min(of_ours / wanted, of_others / available); }

double Neighbours::Taken::cores() const noexcept { return std::min(of_ours, of_others) / passed; }

std::optional<Neighbours::Taken> Neighbours::between(const std::optional<Counts>& before, const std::optional<Counts>& now) {
  if (!before || !now) return std::nullopt;
  const double ran = now->ran - before->ran;
  const double waited = now->waited - before->waited;
  // The kernel's time of waiting for a core includes time that a quota withholds.
  const double held = std::max(0.0, now->held - before->held);
  const Taken taken{.of_ours = std::max(0.0, waited - held),
                    .of_others = std::max(0.0, now->used - before->used - ran),
                    .wanted = ran + waited,
                    .available = now->available - before->available,
                    .passed = now->passed - before->passed};
  if (taken.wanted < kLeastWork || taken.available <= 0 || taken.passed <= 0) return std::nullopt;
  return taken;
}

std::optional<double> Neighbours::take() {
  const std::optional<Counts> counts = now();
  const std::optional<Taken> taken = between(last_, counts);
  if (taken || !last_ || !counts) last_ = counts;  // if too little was measured, the next call covers this time too
  return taken ? std::optional(taken->share()) : std::nullopt;
}

std::optional<double> Neighbours::take_recent_cores() {
  const std::optional<Counts> counts = now();
  const std::optional<Taken> taken = between(std::exchange(last_, counts), counts);
  return taken ? std::optional(taken->cores()) : std::nullopt;
}

std::optional<double> Neighbours::since_made() const {
  const std::optional<Taken> taken = between(first_, now());
  return taken ? std::optional(taken->share()) : std::nullopt;
}

}  // namespace millrace::device
