// Samples the machine's state while a training script runs. The script's workers are separate processes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "millrace/base/json.h"
#include "millrace/doctor/clock_use.h"
#include "millrace/doctor/gpu_use.h"
#include "millrace/doctor/nvml.h"
#include "millrace/doctor/sampler.h"

namespace millrace::doctor {

// Returns the CPU seconds that a process and all its descendants have used so far, including descendants that have ended.
// nullopt if the system does not list the children of a process. `root`: a folder that replaces "/" in tests.
[[nodiscard]] std::optional<double> family_cpu_seconds(int process, const std::filesystem::path& root = "/");

// Use it from one thread. Construct it on the loop's thread, because it measures how long that thread waits for a core.
class ScriptSampler {
 public:
  // `gpu`: reads the script's GPU, which has the number `gpu_index` in CUDA; null = the script has no GPU, or it can't be read.
  ScriptSampler(std::unique_ptr<Nvml> gpu, int gpu_index);

  // Returns {"machine": Sampler::MachineReading since the last call, or null, "evidence": members of Evidence since
  // construction}. The CPU time of child processes counts as the script's own time.
  [[nodiscard]] Json read();

 private:
  struct ThreadSeconds {
    double ran = 0, waited = 0;  // seconds on a core, and seconds of waiting for a core
  };
  [[nodiscard]] std::optional<ThreadSeconds> loop_thread() const;
  void add(Sampler::MachineReading& reading);
  [[nodiscard]] Json evidence(const std::optional<ThreadSeconds>& thread) const;

  bool on_gpu_;
  int loop_thread_id_;
  int cores_;
  std::optional<ThreadSeconds> first_thread_;
  std::optional<double> family_;     // CPU seconds of the script and its child processes at the last reading
  double seconds_ = 0, others_ = 0;  // sums over the readings that have a `family_`: seconds, and CPU seconds of other programs
  GpuUse gpu_;
  ClockUse clock_;
  std::uint64_t rss_bytes_ = 0, gpu_bytes_ = 0, gpu_room_ = 0;  // values at the last reading
  Sampler sampler_;
};

// The machine as a script sees it: see headrace_machine() of door/headrace.h.
[[nodiscard]] Json machine_of_script();
// The number of cores that this process may use: distinct cores, within the quota of its control group.
[[nodiscard]] int cores_of_script();

}  // namespace millrace::doctor
