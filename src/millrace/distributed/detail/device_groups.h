// Groups that carry tensors of a device directly between the ranks, without host memory, and how the groups end.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "millrace/device/rank_groups.h"

namespace millrace::distributed {

// Use it on the thread of the training loop.
class DeviceGroups {
 public:
  // Collective. `seat` is this rank's position in the run. Each group uses a separate part of seat.store. `maker` must outlive
  // this object.
  DeviceGroups(device::RankGroups& maker, at::Device device, device::RankGroups::Seat seat);
  ~DeviceGroups();  // collective if the run ended normally and cut() was not called
  DeviceGroups(const DeviceGroups&) = delete;
  DeviceGroups& operator=(const DeviceGroups&) = delete;

  [[nodiscard]] bool carries(const at::Tensor& value) const { return value.device().type() == device_.type(); }
  [[nodiscard]] c10d::Backend& sums() const { return *all_.front(); }
  [[nodiscard]] c10::intrusive_ptr<c10d::Backend> connect(const std::string& name);  // adds a group; collective
  // The stream for the second halves of sums, separate from the loop's stream.
  [[nodiscard]] c10::Stream second_stream() const { return second_stream_; }
  // Ends all running sums for good. Returns false if the loop's stream was still waiting for a sum. Later results of that
  // stream are then based on incomplete sums.
  bool cut();

 private:
  device::RankGroups& maker_;
  at::Device device_;
  device::RankGroups::Seat seat_;
  c10::Stream second_stream_;
  std::vector<c10::intrusive_ptr<c10d::Backend>> all_;
  bool ended_ = false;
};

// True if the current stream of `device` finishes its work within `seconds`. Always true for a CPU, which has no such work.
[[nodiscard]] bool stream_ends_within(at::Device device, double seconds);

}  // namespace millrace::distributed
