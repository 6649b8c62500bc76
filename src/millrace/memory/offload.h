// Saved tensors of a GPU in host memory, from the forward to the backward pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace millrace::memory {

// Until destruction what operations on this thread save for their gradients goes to host memory (page-locked for a GPU) when it
// is on `device` and has at least `least_bytes`; the backward pass brings it back. `parameters` stay: they would be there anyway.
// What several tensors are views of travels once and comes back as it lay, so bits do not change. The copies run beside the
// device's work: out as soon as a tensor is there, two at a time, and back before the backward pass asks. Blocks that are
// recomputed keep nothing in any case.
class OffloadScope {
 public:
  OffloadScope(c10::Device device, std::uint64_t least_bytes, const std::vector<at::Tensor>& parameters);
  ~OffloadScope();
  OffloadScope(const OffloadScope&) = delete;
  OffloadScope& operator=(const OffloadScope&) = delete;

  [[nodiscard]] std::uint64_t moved_bytes() const noexcept;  // of the memory that tensors lie in

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::memory
