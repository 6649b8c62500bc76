#include "millrace/device/device_clock.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace millrace::device {

void DeviceClock::mark() {
  const c10::impl::VirtualGuardImpl guard(device_.type());
  if (used_ == events_.size()) events_.emplace_back(device_.type(), c10::EventFlag::BACKEND_DEFAULT);  // an event with timing
  events_[used_].record(guard.getStream(device_));
  ++used_;
}

std::vector<double> DeviceClock::between() const {
  std::vector<double> ms;
  if (used_ == 0) return ms;
  events_[used_ - 1].synchronize();
  for (std::size_t i = 1; i < used_; ++i) ms.push_back(events_[i - 1].elapsedTime(events_[i]));
  return ms;
}

}  // namespace millrace::device
