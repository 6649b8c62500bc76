#include "millrace/doctor/script_sampler.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <vector>

#include "millrace/doctor/cause.h"
#include "millrace/system/machine.h"

namespace millrace::doctor {
namespace {

constexpr double kLeastWork = 0.1;  // seconds; /proc/stat counts hundredths of a second

// The children of a process; nullopt if the system does not list children.
std::optional<std::vector<int>> children_of(const std::filesystem::path& process) {
  std::vector<int> children;
  bool listed = false;
  std::error_code error;
  for (std::filesystem::directory_iterator task(process / "task", error), end; !error && task != end; task.increment(error)) {
    std::ifstream file(task->path() / "children");
    listed = listed || file.is_open();
    for (int child = 0; file >> child;) children.push_back(child);
  }
  return listed ? std::optional(std::move(children)) : std::nullopt;
}

// The CPU seconds of a process and of its children that have ended; 0 if the process is gone.
double cpu_seconds_of(const std::filesystem::path& process) {
  std::ifstream file(process / "stat");
  std::string text;
  std::getline(file, text);
  const std::size_t close = text.rfind(')');  // the name of a program may contain brackets too
  if (close == std::string::npos) return 0;
  std::istringstream fields(text.substr(close + 1));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;  // skips the fields from state to cmajflt
  double sum = 0;
  for (int i = 0; i < 4; ++i) {  // utime, stime, cutime, cstime
    double ticks = 0;
    if (fields >> ticks) sum += ticks;
  }
  return sum / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t all = 0, resident = 0;
  return file >> all >> resident ? resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) : 0;
}

Json memory_json(std::uint64_t used) { return {{"used", used}, {"room", used + available_memory_bytes()}}; }

}  // namespace

std::optional<double> family_cpu_seconds(int process, const std::filesystem::path& root) {
  // limit for broken systems, whose lists may contain cycles; no script has this many processes
  constexpr std::size_t kMost = 4096;
  std::vector<int> all = {process};
  double sum = 0;
  for (std::size_t i = 0; i < all.size() && all.size() < kMost; ++i) {
    const auto folder = root / "proc" / std::to_string(all[i]);
    const auto children = children_of(folder);
    if (!children && i == 0) return std::nullopt;
    sum += cpu_seconds_of(folder);
    if (children) all.insert(all.end(), children->begin(), children->end());
  }
  return sum;
}

ScriptSampler::ScriptSampler(std::unique_ptr<Nvml> gpu, int gpu_index)
    : on_gpu_(gpu_index >= 0),
      loop_thread_id_(static_cast<int>(::syscall(SYS_gettid))),
      cores_(cores_of_script()),
      first_thread_(loop_thread()),
      family_(family_cpu_seconds(::getpid())),
      sampler_("/", std::move(gpu), std::max(gpu_index, 0)) {
  sampler_.start();
}

std::optional<ScriptSampler::ThreadSeconds> ScriptSampler::loop_thread() const {
  std::ifstream file("/proc/self/task/" + std::to_string(loop_thread_id_) + "/schedstat");
  ThreadSeconds seconds;  // nanoseconds in the file
  if (!(file >> seconds.ran >> seconds.waited)) return std::nullopt;
  return ThreadSeconds{.ran = seconds.ran * 1e-9, .waited = seconds.waited * 1e-9};
}

// Adds a reading after moving the CPU time of child processes, which `reading` counts as that of other programs, to the script's
// own.
void ScriptSampler::add(Sampler::MachineReading& reading) {
  const std::optional<double> family = family_cpu_seconds(::getpid());
  if (family && family_) {
    const double all = reading.cpu_own + reading.cpu_others;
    reading.cpu_own = std::clamp((*family - *family_) / reading.seconds, reading.cpu_own, std::max(all, reading.cpu_own));
    reading.cpu_others = std::max(0.0, all - reading.cpu_own);
    seconds_ += reading.seconds;
    others_ += reading.cpu_others * reading.seconds;
  }
  family_ = family;
  gpu_.add(reading);
  clock_.add(reading);
  rss_bytes_ = reading.rss_bytes;
  if (reading.gpu && reading.gpu->memory_used && reading.gpu->memory_total) {
    gpu_bytes_ = *reading.gpu->memory_used;
    gpu_room_ = *reading.gpu->memory_total;
  }
}

Json ScriptSampler::evidence(const std::optional<ThreadSeconds>& thread) const {
  Json json = {{"cores", cores_}, {"on_gpu", on_gpu_}};
  if (thread && first_thread_) {
    const double waited = std::max(0.0, thread->waited - first_thread_->waited);
    const double wanted = waited + std::max(0.0, thread->ran - first_thread_->ran);
    json["core_wait_seconds"] = waited;
    if (seconds_ > 0 && wanted > kLeastWork)
      json["others"] = std::min({waited / wanted, others_ / (seconds_ * static_cast<double>(allowed_cpus().size())), 1.0});
  }
  if (const auto gpu = gpu_between({}, gpu_))
    json["gpu"] = {
        {"utilisation", gpu->utilisation}, {"mhz", gpu->mhz}, {"most_mhz", gpu->most_mhz}, {"held_back", gpu->held_back}};
  if (const auto clock = clock_.of_the_run())
    json["clock"] = {{"before_mhz", clock->before_mhz}, {"now_mhz", clock->now_mhz}, {"lost", clock->lost}};
  if (gpu_room_ > 0)
    json["memory"] = {{"used", gpu_bytes_}, {"room", gpu_room_}};
  else if (!on_gpu_)
    json["memory"] = memory_json(rss_bytes_ > 0 ? rss_bytes_ : resident_bytes());
  return json;
}

Json ScriptSampler::read() {
  Json machine;
  if (auto reading = sampler_.take()) {
    add(*reading);
    machine = reading->to_json();
  }
  return {{"machine", std::move(machine)}, {"evidence", evidence(loop_thread())}};
}

int cores_of_script() {
  const Machine machine;
  const int cores = std::max(1, machine.physical_cores(allowed_cpus()));
  const auto quota = machine.cpu_quota();
  return quota ? std::clamp(static_cast<int>(std::ceil(*quota)), 1, cores) : cores;
}

Json machine_of_script() {
  return {{"cores", cores_of_script()}, {"memory", memory_json(resident_bytes())}, {"system", system_mark().to_json()}};
}

}  // namespace millrace::doctor
