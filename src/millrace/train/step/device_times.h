// Measures how steps spend their time on a device that runs asynchronously to the host. The loop's thread can only time how long
// it takes to launch a phase's work; these classes replace that time by the time that the work takes on the device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "millrace/telemetry/spans.h"

namespace millrace {

// Sums of times, which only grow. Callers pass plain numbers, so tests need no device.
class DeviceTimes {
 public:
  // A point in a step, in the order of launches. Work after the mark belongs to `phase`.
  struct Mark {
    telemetry::Phase phase = telemetry::Phase::rest;
    bool ends_step = false;    // true: work after this mark belongs to no observed step
    std::int64_t host_ns = 0;  // the host's clock when it launched the mark
  };

  // Adds these steps: their marks, and the milliseconds on the device from each mark to the next.
  void add(std::span<const Mark> marks, std::span<const double> between_ms);
  void waited(double seconds) noexcept;  // adds the time that the host waited at a log line for all launched work

  // Replaces the phases' times in `stretch` by times on the device, for the steps since the last call. The total time of the
  // steps stays the same. The observed steps represent all steps of `stretch`. If no step was observed, nothing changes. The
  // differences are recorded for correct().
  void book(telemetry::Timeline::Summary& stretch);
  void correct(telemetry::Timeline::Summary& total) const;  // adds all differences that book() recorded to `total`

  struct Sums {
    std::int64_t steps = 0, waits = 0;  // numbers of observed steps and of waits
    double host_seconds = 0;            // the host's time in observed steps, spent on launches; waits for data are not included
    double device_seconds = 0;          // the device's time from the beginning of a step to its end
    double waited_seconds = 0;
  };
  [[nodiscard]] const Sums& sums() const noexcept { return sums_; }

 private:
  using Seconds = std::array<double, telemetry::kPhases>;
  Sums sums_;
  Seconds fresh_{};              // times on the device since the last book()
  Seconds moved_{};              // differences between the host's phases and the device's; they sum to 0
  std::vector<float> fresh_ms_;  // times of steps since the last book()
  std::vector<float> step_ms_;   // times of the latest steps
};

}  // namespace millrace
