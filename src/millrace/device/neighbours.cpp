#include "millrace/device/neighbours.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "millrace/device/detail/machine.h"

namespace millrace::device {
namespace {

constexpr double kLeastWork = 0.1;  // seconds; /proc/stat counts hundredths

// Of the CPUs: seconds that anybody used, and all. Stolen time was another machine's.
std::optional<std::pair<double, double>> used_and_available(std::istream& stat, const std::vector<int>& cpus) {
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  std::pair<double, double> sums{0, 0};
  bool any = false;
  for (std::string line; std::getline(stat, line);) {
    std::istringstream fields(line);
    std::string name;
    fields >> name;
    if (name.size() < 4 || !name.starts_with("cpu")) continue;
    if (std::ranges::none_of(cpus, [&](int cpu) { return name == "cpu" + std::to_string(cpu); })) continue;
    std::array<double, 8> counts{};  // user, nice, system, idle, iowait, irq, softirq, steal
    for (double& count : counts) fields >> count;
    if (!fields) return std::nullopt;
    double all = 0;
    for (const double count : counts) all += count;
    sums.first += (all - counts[3] - counts[4]) / ticks;
    sums.second += all / ticks;
    any = true;
  }
  return any ? std::optional(sums) : std::nullopt;
}

}  // namespace

Neighbours::Neighbours() : Neighbours("/", detail::allowed_cpus()) {}

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
  const auto cpus = used_and_available(stat, cpus_);
  if (!any || !cpus) return std::nullopt;
  std::tie(counts.used, counts.available) = *cpus;
  return counts;
}

std::optional<double> Neighbours::share(const std::optional<Counts>& before, const std::optional<Counts>& now) {
  if (!before || !now) return std::nullopt;
  const double ran = now->ran - before->ran;
  const double waited = now->waited - before->waited;
  const double available = now->available - before->available;
  if (ran + waited < kLeastWork || available <= 0) return std::nullopt;
  const double of_others = std::max(0.0, now->used - before->used - ran) / available;
  return std::min(std::max(0.0, waited) / (ran + waited), of_others);
}

std::optional<double> Neighbours::take() {
  const std::optional<Counts> counts = now();
  const std::optional<double> share = Neighbours::share(last_, counts);
  if (share || !last_ || !counts) last_ = counts;  // else asked again later, of a longer time
  return share;
}

std::optional<double> Neighbours::take_recent() {
  const std::optional<Counts> counts = now();
  return share(std::exchange(last_, counts), counts);
}

std::optional<double> Neighbours::since_made() const { return share(first_, now()); }

}  // namespace millrace::device
