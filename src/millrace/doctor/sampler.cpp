#include "millrace/doctor/sampler.h"

#include <pthread.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <system_error>

#include "millrace/base/clock.h"
#include "millrace/base/format.h"

namespace millrace::doctor {
namespace {

constexpr double kLeastCores = 0.01;  // a thread that uses fewer cores than this is left out

constexpr double kSlowest = 64;  // the longest time between samples, in seconds

double thread_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double seconds_of(const timeval& time) { return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6; }

// Finds a line "<key>   123 kB" or "<key>: 123" and returns the number.
std::optional<std::uint64_t> number_after(const std::filesystem::path& file, const std::string& key) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with(key)) continue;
    std::istringstream rest(line.substr(key.size()));
    std::uint64_t value = 0;
    if (rest >> value) return value;
  }
  return std::nullopt;
}

// Finds the line "some avg10=0.00 avg60=0.00 avg300=0.00 total=12345" and returns its total, in seconds.
std::optional<double> pressure(const std::filesystem::path& file) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    const auto at = line.find("total=");
    if (!line.starts_with("some") || at == std::string::npos) continue;
    std::istringstream rest(line.substr(at + 6));
    double microseconds = 0;
    if (rest >> microseconds) return microseconds * 1e-6;
  }
  return std::nullopt;
}

// The CPU time that programs have used on all cores, and the CPU time that other virtual machines took from these cores, in
// seconds.
std::pair<double, double> used_and_stolen(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string name;
  std::array<double, 8> counts{};  // the line's numbers: user, nice, system, idle, iowait, irq, softirq, steal
  if (!(stream >> name) || name != "cpu") return {0, 0};
  for (double& count : counts) stream >> count;
  if (!stream) return {0, 0};
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  return {(counts[0] + counts[1] + counts[2] + counts[5] + counts[6]) / ticks, counts[7] / ticks};
}

std::optional<double> after_colon(const std::string& line) {
  std::istringstream rest(line.substr(std::min(line.find(':') + 1, line.size())));
  double value = 0;
  return rest >> value ? std::optional(value) : std::nullopt;
}

// The clock of the core, or the clock of the first core if the system does not distinguish cores.
std::optional<double> clock_mhz(const std::filesystem::path& root, int core) {
  std::ifstream current(root / ("sys/devices/system/cpu/cpu" + std::to_string(core)) / "cpufreq/scaling_cur_freq");
  if (double khz = 0; current >> khz) return khz * 1e-3;
  std::ifstream info(root / "proc/cpuinfo");
  std::optional<double> first;
  bool is_core = false;
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("processor")) is_core = after_colon(line) == static_cast<double>(core);
    if (!line.starts_with("cpu MHz")) continue;
    const auto mhz = after_colon(line);
    if (is_core && mhz) return mhz;
    if (!first) first = mhz;
  }
  return first;
}

// The core of the thread that used the most CPU time between `before` and `now`; the first core if no thread used any.
int core_of_busiest(const std::map<int, Sampler::ThreadCounts>& before, const std::map<int, Sampler::ThreadCounts>& now) {
  double most = 0;
  int core = 0;
  for (const auto& [id, thread] : now) {
    const auto earlier = before.find(id);
    const double ran = thread.seconds - (earlier == before.end() ? 0 : earlier->second.seconds);
    if (ran <= most) continue;
    most = ran;
    core = thread.core;
  }
  return core;
}

std::map<int, Sampler::ThreadCounts> threads_in(const std::filesystem::path& tasks) {
  std::map<int, Sampler::ThreadCounts> all;
  const double tick = 1.0 / static_cast<double>(::sysconf(_SC_CLK_TCK));
  std::error_code error;
  for (std::filesystem::directory_iterator entry(tasks, error), end; !error && entry != end; entry.increment(error)) {
    std::ifstream file(entry->path() / "stat");
    std::string text;
    std::getline(file, text);
    const std::size_t open = text.find('('), close = text.rfind(')');  // the name of a thread may contain brackets too
    if (open == std::string::npos || close == std::string::npos || close < open || close + 2 > text.size()) continue;
    std::istringstream fields(text.substr(close + 2));
    std::string skipped;
    for (int i = 0; i < 11; ++i) fields >> skipped;  // skips the fields from state to cmajflt
    double user = 0, system = 0;
    const std::string id = entry->path().filename();
    if (id.find_first_not_of("0123456789") != std::string::npos || id.size() >= 10 || !(fields >> user >> system)) continue;
    for (int i = 0; i < 23; ++i) fields >> skipped;  // skips the fields from cutime to exit_signal
    Sampler::ThreadCounts& thread = all[std::stoi(id)];
    thread = {.name = printable(text.substr(open + 1, close - open - 1)), .seconds = (user + system) * tick};
    fields >> thread.core;
  }
  return all;
}

// The memory of this process's control group. /proc/self/cgroup lists the group as "0::/a/b" (cgroup version 2) or
// "4:memory:/a/b" (version 1).
std::optional<std::uint64_t> group_bytes(const std::filesystem::path& root) {
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', std::min(first, line.size() - 1) + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controller = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (controller != "memory" && !controller.empty()) continue;
    const auto folder =
        root / (controller.empty() ? "sys/fs/cgroup" : "sys/fs/cgroup/memory") / std::filesystem::path(path).relative_path();
    std::ifstream file(folder / (controller.empty() ? "memory.current" : "memory.usage_in_bytes"));
    if (std::uint64_t bytes = 0; file >> bytes) return bytes;
  }
  return std::nullopt;
}

template <class T>
std::optional<T> difference(const std::optional<T>& now, const std::optional<T>& before) {
  return now && before && *now >= *before ? std::optional<T>(*now - *before) : std::nullopt;
}

}  // namespace

Json Sampler::MachineReading::to_json() const {
  Json json = {{"seconds", seconds},       {"cpu_own", cpu_own},     {"cpu_others", cpu_others},
               {"cpu_stolen", cpu_stolen}, {"rss_bytes", rss_bytes}, {"major_faults", major_faults}};
  const auto add = [&json](const char* name, const auto& value) {
    if (value) json[name] = *value;
  };
  add("available_bytes", available_bytes);
  add("read_bytes", read_bytes);
  add("written_bytes", written_bytes);
  add("pressure_cpu", pressure_cpu);
  add("pressure_io", pressure_io);
  add("pressure_memory", pressure_memory);
  add("mhz", mhz);
  add("page_cache_bytes", page_cache_bytes);
  add("group_bytes", group_bytes);
  if (!threads.empty()) json["threads"] = threads;
  if (gpu) json["gpu"] = gpu->to_json();
  return json;
}

Sampler::Sampler(std::filesystem::path root, std::unique_ptr<Nvml> gpu, int gpu_index)
    : root_(std::move(root)),
      gpu_(std::move(gpu)),
      gpu_index_(gpu_index),
      began_(steady_seconds()),
      last_(now()),
      newest_(last_) {}

Sampler::~Sampler() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Sampler::start() {
  try {
    thread_ = std::thread([this] {
      ::pthread_setname_np(::pthread_self(), "mr-sampler");
      std::unique_lock lock(mutex_);
      while (!ends_) {
        wake_.wait_for(lock, std::chrono::duration<double>(interval_), [this] { return ends_; });
        if (ends_) return;
        lock.unlock();
        look();
        lock.lock();
      }
    });
  } catch (const std::system_error&) {  // the system can't create a thread; a run works without samples
  }
}

Sampler::Counts Sampler::now() const {
  Counts counts;
  counts.at = steady_seconds();
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  counts.cpu_own = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
  counts.major_faults = static_cast<std::uint64_t>(usage.ru_majflt);
  std::tie(counts.cpu_all, counts.stolen) = used_and_stolen(root_ / "proc/stat");
  counts.read_bytes = number_after(root_ / "proc/self/io", "read_bytes:");
  counts.written_bytes = number_after(root_ / "proc/self/io", "write_bytes:");
  counts.pressure_cpu = pressure(root_ / "proc/pressure/cpu");
  counts.pressure_io = pressure(root_ / "proc/pressure/io");
  counts.pressure_memory = pressure(root_ / "proc/pressure/memory");
  counts.threads = threads_in(root_ / "proc/self/task");
  return counts;
}

void Sampler::look() {
  const double cpu_began = thread_cpu_seconds();
  const Counts counts = now();
  const std::map<int, Sampler::ThreadCounts> before = [this] {
    const std::lock_guard lock(mutex_);
    return newest_.threads;
  }();
  const auto resident = number_after(root_ / "proc/self/status", "VmRSS:");
  const auto available = number_after(root_ / "proc/meminfo", "MemAvailable:");
  const auto page_cache = number_after(root_ / "proc/meminfo", "Cached:");
  const auto group = group_bytes(root_);
  const auto mhz = clock_mhz(root_, core_of_busiest(before, counts.threads));
  const auto gpu = gpu_ ? gpu_->read(gpu_index_, std::getenv("CUDA_VISIBLE_DEVICES")) : std::nullopt;
  const std::lock_guard lock(mutex_);
  gpu_now_ = gpu;
  if (gpu) add(*gpu);
  newest_ = counts;
  looked_ = true;
  constexpr std::uint64_t kKilo = 1024;
  if (resident) levels_.rss_bytes = std::max(levels_.rss_bytes, *resident * kKilo);
  if (available) levels_.available_bytes = std::min(levels_.available_bytes.value_or(*available * kKilo), *available * kKilo);
  if (page_cache) levels_.page_cache_bytes = *page_cache * kKilo;
  if (group) levels_.group_bytes = std::max(levels_.group_bytes.value_or(0), *group);
  if (mhz) {
    clocks_ += *mhz;
    ++clock_looks_;
  }
  spent_ += thread_cpu_seconds() - cpu_began;
  const double passed = std::max(steady_seconds() - began_, interval_);
  if (spent_ > kMostCost * passed) interval_ = std::min(2 * interval_, kSlowest);
}

void Sampler::add(const Nvml::Reading& reading) {
  Nvml::Reading& all = gpu_looks_.extremes;
  if (gpu_looks_.count++ == 0) all = reading;
  gpu_looks_.used += reading.utilisation.value_or(0);
  for (const std::string& reason : reading.held_back) ++gpu_looks_.held_back[reason];
  if (reading.memory_used) all.memory_used = std::max(all.memory_used.value_or(0), *reading.memory_used);
  if (reading.mhz) all.mhz = std::min(all.mhz.value_or(*reading.mhz), *reading.mhz);
  if (reading.celsius) all.celsius = std::max(all.celsius.value_or(*reading.celsius), *reading.celsius);
  if (reading.watts) all.watts = std::max(all.watts.value_or(0), *reading.watts);
}

std::optional<Nvml::Reading> Sampler::take_gpu() {
  GpuLooks looks = std::exchange(gpu_looks_, {});
  if (looks.count == 0) return std::nullopt;
  Nvml::Reading reading = std::move(looks.extremes);
  if (reading.utilisation) reading.utilisation = looks.used / looks.count;
  reading.held_back.clear();
  for (const auto& [reason, count] : looks.held_back) {
    if (2 * count >= looks.count) reading.held_back.push_back(reason);
  }
  return reading;
}

std::optional<Sampler::MachineReading> Sampler::take() {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(looked_, false)) return std::nullopt;
  Sampler::MachineReading reading = std::exchange(levels_, {});
  reading.gpu = take_gpu();
  if (clock_looks_ > 0) reading.mhz = clocks_ / static_cast<double>(clock_looks_);
  clocks_ = 0;
  clock_looks_ = 0;
  const double seconds = std::max(newest_.at - last_.at, 1e-9);
  reading.seconds = seconds;
  reading.cpu_own = (newest_.cpu_own - last_.cpu_own) / seconds;
  reading.cpu_others = std::max(0.0, (newest_.cpu_all - last_.cpu_all) / seconds - reading.cpu_own);
  reading.cpu_stolen = (newest_.stolen - last_.stolen) / seconds;
  reading.major_faults = newest_.major_faults - last_.major_faults;
  reading.read_bytes = difference(newest_.read_bytes, last_.read_bytes);
  reading.written_bytes = difference(newest_.written_bytes, last_.written_bytes);
  const auto part = [seconds](std::optional<double> waited) { return waited ? std::optional(*waited / seconds) : std::nullopt; };
  reading.pressure_cpu = part(difference(newest_.pressure_cpu, last_.pressure_cpu));
  reading.pressure_io = part(difference(newest_.pressure_io, last_.pressure_io));
  reading.pressure_memory = part(difference(newest_.pressure_memory, last_.pressure_memory));
  for (const auto& [id, now] : newest_.threads) {
    const auto before = last_.threads.find(id);
    reading.threads[now.name] += (now.seconds - (before == last_.threads.end() ? 0 : before->second.seconds)) / seconds;
  }
  std::erase_if(reading.threads, [](const auto& thread) { return thread.second < kLeastCores; });
  last_ = newest_;
  return reading;
}

std::optional<Nvml::Reading> Sampler::gpu() const {
  const std::lock_guard lock(mutex_);
  return gpu_now_;
}

double Sampler::cost() const {
  const std::lock_guard lock(mutex_);
  return spent_ / std::max(steady_seconds() - began_, interval_);
}

}  // namespace millrace::doctor
