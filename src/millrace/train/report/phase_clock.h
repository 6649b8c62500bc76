// Records on the device when the phases of some steps begin and end. The times are read at the next log line, which waits for the
// device anyway, so no step waits for them.
#pragma once

#include <c10/core/Device.h>

#include <vector>

#include "millrace/device/device_clock.h"
#include "millrace/telemetry/span_watch.h"
#include "millrace/train/step/device_times.h"

namespace millrace {

// Used by the loop's thread. For devices that run asynchronously to the host.
class PhaseClock final : telemetry::SpanWatch {
 public:
  // `every`: the number of steps between log lines.
  PhaseClock(c10::Device device, std::int64_t every);
  ~PhaseClock() override;
  PhaseClock(const PhaseClock&) = delete;
  PhaseClock& operator=(const PhaseClock&) = delete;

  void begin_step(std::int64_t step);  // records every eighth step, because each mark costs the host a kernel launch; records
                                       // every step if log lines are fewer than eight steps apart
  void end_step();
  void read(double waited_seconds);  // called at a log line, after the host waited this long for the device
  [[nodiscard]] DeviceTimes& times() noexcept { return times_; }
  [[nodiscard]] const DeviceTimes& times() const noexcept { return times_; }

 private:
  void begins(telemetry::Phase phase) noexcept override;
  void ends() noexcept override;
  void mark(telemetry::Phase phase, bool ends_step);
  void stop_watching() noexcept;

  device::DeviceClock clock_;
  std::int64_t every_;
  DeviceTimes times_;
  std::vector<DeviceTimes::Mark> marks_;
  std::vector<telemetry::Phase> open_;  // the phases that the step is in at present, outermost first
  bool watches_ = false;
  bool has_failed_ = false;  // true: a mark failed, so no more marks are made; the device reports the error at its next operation
};

}  // namespace millrace
