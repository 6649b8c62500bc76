// The groups that carry tensors of a device between the ranks without a way by host memory, and how they end.
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

// Used by the loop's thread.
class DeviceGroups {
 public:
  // Collective. `seat`: of the run; each group gets a corner of its store. `maker` outlives this.
  DeviceGroups(device::RankGroups& maker, at::Device device, device::RankSeat seat);
  ~DeviceGroups();  // of a run that came to its end: collective, unless cut() was called
  DeviceGroups(const DeviceGroups&) = delete;
  DeviceGroups& operator=(const DeviceGroups&) = delete;

  [[nodiscard]] bool carries(const at::Tensor& value) const { return value.device().type() == device_.type(); }
  [[nodiscard]] c10d::Backend& sums() const { return *all_.front(); }
  [[nodiscard]] c10::intrusive_ptr<c10d::Backend> connect(const std::string& name);  // one more; collective
  // Where the second halves of sums are computed, beside the loop's own stream.
  [[nodiscard]] c10::Stream beside() const { return beside_; }
  // Ends all that is under way, for good. False where the loop's stream had not come to the end of what it waits for: what it
  // computes after that is computed with half a sum.
  bool cut();

 private:
  device::RankGroups& maker_;
  at::Device device_;
  device::RankSeat seat_;
  c10::Stream beside_;
  std::vector<c10::intrusive_ptr<c10d::Backend>> all_;
  bool ended_ = false;
};

// Whether the current stream of `device` comes to the end of what it has to do within that time; a CPU has nothing to do.
[[nodiscard]] bool stream_ends_within(at::Device device, double seconds);

}  // namespace millrace::distributed
