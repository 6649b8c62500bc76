// Summarises how a run used its GPU during a stretch.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "millrace/doctor/evidence.h"
#include "millrace/doctor/sampler.h"

namespace millrace::doctor {

// Sums over readings, weighted by their seconds. The sums only grow, so the difference of two GpuUse objects describes the
// stretch between them.
struct GpuUse {
  double seconds = 0, busy = 0;
  double clock_seconds = 0, cycles = 0;  // sums over the readings that have a clock; cycles: MHz times seconds
  double most_mhz = 0;                   // maximum clock of the GPU
  std::map<std::string, double> held_back;

  // Adds a reading. A reading without the GPU's utilisation is ignored.
  void add(const Sampler::MachineReading& reading) {
    if (!reading.gpu || !reading.gpu->utilisation || reading.seconds <= 0) return;
    seconds += reading.seconds;
    busy += *reading.gpu->utilisation * reading.seconds;
    for (const std::string& reason : reading.gpu->held_back) held_back[reason] += reading.seconds;
    if (!reading.gpu->mhz) return;
    clock_seconds += reading.seconds;
    cycles += *reading.gpu->mhz * reading.seconds;
    most_mhz = reading.gpu->most_mhz.value_or(most_mhz);
  }
};

// Means over the time between `from` and `to`, and the reasons that kept the clock low for at least half of that time. nullopt
// if there was no reading.
[[nodiscard]] inline std::optional<Evidence::Gpu> gpu_between(const GpuUse& from, const GpuUse& to) {
  const double seconds = to.seconds - from.seconds, clocked = to.clock_seconds - from.clock_seconds;
  if (seconds <= 0) return std::nullopt;
  Evidence::Gpu gpu{.utilisation = (to.busy - from.busy) / seconds,
                    .mhz = clocked > 0 ? (to.cycles - from.cycles) / clocked : 0,
                    .most_mhz = to.most_mhz,
                    .held_back = {}};
  for (const auto& [reason, until] : to.held_back) {
    const auto before = from.held_back.find(reason);
    const double held = until - (before == from.held_back.end() ? 0 : before->second);
    if (2 * held >= seconds) gpu.held_back.push_back(reason);
  }
  return gpu;
}

}  // namespace millrace::doctor
