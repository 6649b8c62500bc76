// What readings of the clock beside a run come to.
#pragma once

#include <deque>
#include <optional>

#include "millrace/doctor/evidence.h"
#include "millrace/doctor/sampler.h"

namespace millrace::doctor {

// A core's clock depends on how many cores compute: only readings count in which the run had as many as in its first minute.
class ClockUse {
 public:
  void add(const MachineReading& reading);  // what tells no clock changes nothing
  // Of the latest minute of the same load. nullopt: there was none yet, or the latest readings are of another load.
  [[nodiscard]] std::optional<CpuClock> latest() const;
  [[nodiscard]] std::optional<CpuClock> of_the_run() const;  // the same, with what was lost since the first reading

 private:
  struct Reading {
    double seconds = 0, mhz = 0, cores = 0;
  };
  void begin(const Reading& reading);

  std::deque<Reading> first_;      // of the first minute, until it is over
  std::optional<Reading> before_;  // its medians
  std::deque<Reading> latest_;     // a minute at least, once there is one
  int unlike_ = 0;                 // readings of another load, in a row
  double seconds_ = 0, lost_seconds_ = 0;
};

}  // namespace millrace::doctor
