// Keeps a GPU's saved tensors in host memory between the forward and the backward pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace millrace::memory {

// While this object exists, tensors that operations on this thread save for their gradients are moved from `device` to host
// memory (page-locked for a GPU). Tensors of fewer than `least_bytes` stay. The backward pass brings them back. `parameters` stay
// on the device, which holds them in any case. Memory that several tensors share is copied once and comes back with the same
// layout, so results do not change by a bit. The copies overlap the device's work. A tensor is copied out as soon as it exists,
// with at most two such copies at a time, and is copied back before the backward pass needs it. Recomputed blocks save no
// tensors.
class OffloadScope {
 public:
  OffloadScope(c10::Device device, std::uint64_t least_bytes, const std::vector<at::Tensor>& parameters);
  ~OffloadScope();
  OffloadScope(const OffloadScope&) = delete;
  OffloadScope& operator=(const OffloadScope&) = delete;

  [[nodiscard]] std::uint64_t moved_bytes() const noexcept;  // bytes of memory that the moved tensors use

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::memory
