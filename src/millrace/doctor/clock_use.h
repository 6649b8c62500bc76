// Summarises readings of the CPU clock during a run.
#pragma once

#include <deque>
#include <optional>

#include "millrace/doctor/evidence.h"
#include "millrace/doctor/sampler.h"

namespace millrace::doctor {

// A core's clock depends on how many cores compute, so only readings with about as many busy cores as in the run's first minute
// count.
class ClockUse {
 public:
  void add(const Sampler::MachineReading& reading);  // ignores a reading without a clock
  // The clock of the latest minute at the same load. nullopt: no such minute so far, or the latest readings have another load.
  [[nodiscard]] std::optional<Evidence::CpuClock> latest() const;
  [[nodiscard]] std::optional<Evidence::CpuClock> of_the_run()
      const;  // over the whole run, with the loss since the first reading

 private:
  struct Reading {
    double seconds = 0, mhz = 0, cores = 0;
  };
  void begin(const Reading& reading);

  std::deque<Reading> first_;      // readings of the first minute, until it is over
  std::optional<Reading> before_;  // medians of the first minute
  std::deque<Reading> latest_;     // readings of at least the latest minute, once the run is that old
  int unlike_ = 0;                 // consecutive readings at another load
  double seconds_ = 0, lost_seconds_ = 0;
};

}  // namespace millrace::doctor
