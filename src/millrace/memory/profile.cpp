#include "millrace/memory/profile.h"

#include <algorithm>

#include "millrace/base/clock.h"
#include "millrace/device/device.h"
#include "millrace/device/tensor_memory.h"

namespace millrace::memory {
namespace {

double now_ms(c10::Device device) {
  if (!device.is_cpu()) device::backend_of(device).synchronize(device.has_index() ? device.index() : 0);
  return steady_seconds() * 1e3;
}

}  // namespace

std::uint64_t StepProfile::peak_bytes() const noexcept {
  std::uint64_t peak = 0;
  for (const StepProfile::Segment& segment : segments) peak = std::max(peak, segment.peak_bytes);
  return peak;
}

std::string StepProfile::where(const Segment& segment) const {
  if (segment.block < 0) return "before the first block";
  const std::string& name = blocks[static_cast<std::size_t>(segment.block)];
  switch (segment.kind) {
    case StepProfile::Segment::Kind::gap:
      return "after the forward pass of " + name;
    case StepProfile::Segment::Kind::forward:
      return "in the forward pass of " + name;
    case StepProfile::Segment::Kind::backward:
      return "in the backward pass of " + name;
  }
  return name;
}

Profiler::Profiler(c10::Device device) : device_(device) {
  device::reset_peak_tensor_memory(device_);
  open_.begin_bytes = device::tensor_memory(device_).live_bytes;
  begin_ms_ = now_ms(device_);
}

void Profiler::close() {
  const double now = now_ms(device_);
  const device::TensorMemory memory = device::tensor_memory(device_);
  open_.peak_bytes = memory.peak_bytes;
  open_.end_bytes = memory.live_bytes;
  open_.ms = now - begin_ms_;
  profile_.segments.push_back(open_);
}

void Profiler::next(StepProfile::Segment::Kind kind, std::int64_t block) {
  close();
  open_ = {.kind = kind, .block = block, .begin_bytes = profile_.segments.back().end_bytes};
  device::reset_peak_tensor_memory(device_);
  begin_ms_ = now_ms(device_);
}

std::size_t Profiler::forward_begins(std::string_view block) {
  const std::size_t index = profile_.blocks.size();
  profile_.blocks.emplace_back(block);
  profile_.second_pass_bytes.push_back(0);
  profile_.second_pass_ms.push_back(0);
  next(StepProfile::Segment::Kind::forward, static_cast<std::int64_t>(index));
  return index;
}

void Profiler::forward_ends() { next(StepProfile::Segment::Kind::gap, static_cast<std::int64_t>(profile_.blocks.size()) - 1); }

void Profiler::backward_begins(std::size_t index) {
  next(StepProfile::Segment::Kind::backward, static_cast<std::int64_t>(index));
}

void Profiler::second_pass_begins(std::size_t) {
  second_pass_live_ = device::tensor_memory(device_).live_bytes;
  second_pass_begin_ms_ = now_ms(device_);
}

void Profiler::second_pass_ends(std::size_t index) {
  const std::uint64_t live = device::tensor_memory(device_).live_bytes;
  profile_.second_pass_bytes[index] = live > second_pass_live_ ? live - second_pass_live_ : 0;
  profile_.second_pass_ms[index] = now_ms(device_) - second_pass_begin_ms_;
}

StepProfile Profiler::finish() {
  close();
  return std::move(profile_);
}

}  // namespace millrace::memory
