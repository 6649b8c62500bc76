// Where the time of steps goes on a device that runs asynchronously to the host. The accounts of the loop's thread hold the times
// of the launches; these classes replace them with the times on the device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "millrace/telemetry/spans.h"

namespace millrace {

// Sums; they only grow. Plain numbers, so that tests need no device.
class DeviceTimes {
 public:
  // A point in a step, in the order of launches: work after it belongs to `phase`.
  struct Mark {
    telemetry::Phase phase = telemetry::Phase::rest;
    bool ends_step = false;    // work after it belongs to no observed step
    std::int64_t host_ns = 0;  // time at which the host was there
  };

  // Adds this number of steps: their marks, and the device's milliseconds from each mark to the next.
  void add(std::span<const Mark> marks, std::span<const double> between_ms);
  void waited(double seconds) noexcept;  // at a log line, until the device had finished all launched work

  // Divides the steps' time among the phases as on the device since the last call, and records the difference. The steps' total
  // stays the same. Observed steps stand for all steps of the stretch; if no step was observed, nothing changes.
  void book(telemetry::Timeline::Summary& stretch);
  void correct(telemetry::Timeline::Summary& total) const;  // by all differences so far

  struct Sums {
    std::int64_t steps = 0, waits = 0;  // observed steps and waits
    double host_seconds = 0;            // in these steps, without waiting for data: time for launches
    double device_seconds = 0;          // from the begin of a step to its end
    double waited_seconds = 0;
  };
  [[nodiscard]] const Sums& sums() const noexcept { return sums_; }

 private:
  using Seconds = std::array<double, telemetry::kPhases>;
  Sums sums_;
  Seconds fresh_{};              // on the device, since the last book()
  Seconds moved_{};              // from the host's phases to the device's; they sum to 0
  std::vector<float> fresh_ms_;  // of steps, since the last book()
  std::vector<float> step_ms_;   // of the latest steps
};

}  // namespace millrace
