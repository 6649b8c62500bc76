// Summarises the CPU's clock during a run.
#pragma once

#include <deque>
#include <optional>

#include "millrace/doctor/evidence.h"
#include "millrace/doctor/sampler.h"

namespace millrace::doctor {

// Compares the CPU's clock with its value in the run's first minute. A core's clock depends on how many cores are busy. So only
// readings with about the same number of busy cores as in the first minute count.
class ClockUse {
 public:
  void add(const Sampler::MachineReading& reading);  // a reading without a clock is ignored
  // The clock of the latest minute. nullopt if there is no minute to compare with yet, or if the load of the latest readings
  // differs from the first minute's.
  [[nodiscard]] std::optional<Evidence::CpuClock> latest() const;
  [[nodiscard]] std::optional<Evidence::CpuClock> of_the_run() const;  // like latest(), but `lost` covers the whole run

 private:
  struct Reading {
    double seconds = 0, mhz = 0, cores = 0;
  };
  void begin(const Reading& reading);

  std::deque<Reading> first_;      // the readings of the first minute, until it is over
  std::optional<Reading> before_;  // medians of the first minute
  std::deque<Reading> latest_;     // readings of at least the latest minute; filled after the first minute
  int unlike_ = 0;                 // number of consecutive readings with another load than in the first minute
  double seconds_ = 0, lost_seconds_ = 0;
};

}  // namespace millrace::doctor
