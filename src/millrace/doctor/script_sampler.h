// Samples the machine beside a training script, whose workers are processes of their own.
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

// The CPU seconds of a process and of all its descendants so far, with those that have ended. nullopt if the system does not
// list the children of a process. `root`: a folder that stands for "/" in tests.
[[nodiscard]] std::optional<double> family_cpu_seconds(int process, const std::filesystem::path& root = "/");

// Used by one thread, at first the loop's: whether that thread has a core is part of what is read.
class ScriptSampler {
 public:
  // `gpu`: reads the script's GPU, which has the number `gpu_index` in CUDA; null = it has none, or nothing can be read.
  ScriptSampler(std::unique_ptr<Nvml> gpu, int gpu_index);

  // {"machine": Sampler::MachineReading since the last call, or null, "evidence": members of Evidence since construction}. The
  // CPU time of child processes counts as the script's own.
  [[nodiscard]] Json read();

 private:
  struct ThreadSeconds {
    double ran = 0, waited = 0;  // on a core, and for a core
  };
  [[nodiscard]] std::optional<ThreadSeconds> loop_thread() const;
  void add(Sampler::MachineReading& reading);
  [[nodiscard]] Json evidence(const std::optional<ThreadSeconds>& thread) const;

  bool on_gpu_;
  int loop_thread_id_;
  int cores_;
  std::optional<ThreadSeconds> first_thread_;
  std::optional<double> family_;     // at the last reading, without this process
  double seconds_ = 0, others_ = 0;  // of readings that know the family: their length, and the CPU seconds of other programs
  GpuUse gpu_;
  ClockUse clock_;
  std::uint64_t rss_bytes_ = 0, gpu_bytes_ = 0, gpu_room_ = 0;  // at the last reading
  Sampler sampler_;
};

// What a script's page tells of the machine: see headrace_machine() of door/headrace.h.
[[nodiscard]] Json machine_of_script();
// The cores that this process may use: distinct cores, within the quota of its control group.
[[nodiscard]] int cores_of_script();

}  // namespace millrace::doctor
