// Keeps saved tensors of a GPU in host memory from the forward to the backward pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace millrace::memory {

// Until destruction, tensors that operations on this thread save for their gradients go to host memory (page-locked for a GPU) if
// they are on `device` and have at least `least_bytes`; the backward pass brings them back. `parameters` are left there, since
// the device holds them in any case. Memory shared by several tensors travels once and comes back with the same layout, so bits
// do not change. The copies overlap the device's work: out as soon as a tensor exists, two at a time, and back before the
// backward pass asks. Recomputed blocks keep nothing in any case.
class OffloadScope {
 public:
  OffloadScope(c10::Device device, std::uint64_t least_bytes, const std::vector<at::Tensor>& parameters);
  ~OffloadScope();
  OffloadScope(const OffloadScope&) = delete;
  OffloadScope& operator=(const OffloadScope&) = delete;

  [[nodiscard]] std::uint64_t moved_bytes() const noexcept;  // size of the memory that the moved tensors use

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::memory
