#include "millrace/distributed/detail/device_groups.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <exception>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "millrace/base/clock.h"

namespace millrace::distributed {
namespace {

c10::Stream make_second_stream(at::Device device) {
  if (device.is_cpu()) return c10::Stream(c10::Stream::DEFAULT, device);
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

bool has_failed(c10d::Backend& group) {
  try {
    return group.getError() != c10d::ErrorType::SUCCESS;
  } catch (const std::exception&) {
    return false;  // this backend does not implement getError()
  }
}

}  // namespace

bool stream_ends_within(at::Device device, double seconds) {
  if (device.is_cpu()) return true;
  try {
    c10::Event end(device.type());
    end.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
    const double limit = steady_seconds() + seconds;
    while (!end.query()) {
      if (steady_seconds() > limit) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
  } catch (const std::exception&) {  // the device itself has failed
    return false;
  }
}

DeviceGroups::DeviceGroups(device::RankGroups& maker, at::Device device, device::RankGroups::Seat seat)
    : maker_(maker), device_(device), seat_(std::move(seat)), second_stream_(make_second_stream(device)) {
  (void)connect("sums");
}

DeviceGroups::~DeviceGroups() {
  if (ended_) return;
  for (const auto& group : all_) {
    try {
      group->shutdown();
    } catch (const std::exception&) {  // the run is over and its results are written, so errors do not matter
    }
  }
}

c10::intrusive_ptr<c10d::Backend> DeviceGroups::connect(const std::string& name) {
  device::RankGroups::Seat seat = seat_;
  seat.store = c10::make_intrusive<c10d::PrefixStore>(maker_.name() + "/" + name, seat_.store);
  all_.push_back(maker_.connect(seat));
  return all_.back();
}

bool DeviceGroups::cut() {
  constexpr double kPatience = 0.3;  // seconds that sums already begun by the remaining ranks get to finish
  if (std::exchange(ended_, true)) return true;
  bool is_whole = stream_ends_within(device_, kPatience);
  for (const auto& group : all_) is_whole = !has_failed(*group) && is_whole;
  for (const auto& group : all_) {
    try {
      group->abort();
    } catch (const std::exception&) {
      is_whole = false;
    }
  }
  return is_whole;
}

}  // namespace millrace::distributed
