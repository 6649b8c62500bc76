// Where the time of steps goes on a device that works behind the host. The accounts of the loop's thread say when it launched
// what; these say when the device did it, and put that in their place.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "millrace/telemetry/spans.h"

namespace millrace {

// A place in a step, in the order of launches: what comes after it belongs to `phase`.
struct PhaseMark {
  telemetry::Phase phase = telemetry::Phase::rest;
  bool ends_step = false;    // what comes after it is of no step that is looked at
  std::int64_t host_ns = 0;  // when the host was there
};

// Sums; they only rise. Plain numbers, so that they are tested without a device.
class DeviceTimes {
 public:
  // Of so many steps: their marks, and the device's milliseconds from each to the next.
  void add(std::span<const PhaseMark> marks, std::span<const double> between_ms);
  void waited(double seconds) noexcept;  // at a log line, until the device had done all that it was given

  // Shares the steps' time out among the phases as the device did since the last call, and notes what it moved. What steps took
  // in all stays as it was. Steps of the stretch have the device's times; where none was looked at nothing changes.
  void book(telemetry::Timeline::Summary& stretch);
  void correct(telemetry::Timeline::Summary& total) const;  // by all that was moved so far

  struct Sums {
    std::int64_t steps = 0, waits = 0;  // that were looked at
    double host_seconds = 0;            // in these steps, without waiting for data: launching
    double device_seconds = 0;          // from the begin of a step to its end
    double waited_seconds = 0;
  };
  [[nodiscard]] const Sums& sums() const noexcept { return sums_; }

 private:
  using Seconds = std::array<double, telemetry::kPhases>;
  Sums sums_;
  Seconds fresh_{};              // of the device, since the last book()
  Seconds moved_{};              // from the host's phases to the device's; they sum to 0
  std::vector<float> fresh_ms_;  // of steps, since then
  std::vector<float> step_ms_;   // of the latest steps
};

}  // namespace millrace
