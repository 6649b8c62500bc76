// Times at which a device reaches marked points of its work, by the device's own clock. The host does not wait between the marks.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <cstddef>
#include <vector>

namespace millrace::device {

// Use it on the thread that launches the work. Not for a CPU, where the work is done when a call returns.
class DeviceClock {
 public:
  explicit DeviceClock(c10::Device device) : device_(device) {}
  void mark();  // marks a point in the stream of this thread's operations
  [[nodiscard]] std::size_t marks() const noexcept { return used_; }
  // Milliseconds from each mark to the next. Waits until the device has reached the last mark.
  [[nodiscard]] std::vector<double> between() const;
  void clear() noexcept { used_ = 0; }  // removes all marks; their events are reused

 private:
  c10::Device device_;
  std::vector<c10::Event> events_;
  std::size_t used_ = 0;
};

}  // namespace millrace::device
