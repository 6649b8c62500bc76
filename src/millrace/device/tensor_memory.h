// Counts the bytes of CPU tensors that exist. Millrace's allocator wraps LibTorch's allocator and counts the bytes. Memory that
// libraries below LibTorch allocate for themselves (scratch space of convolutions) is not counted.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "millrace/device/free_memory.h"

namespace millrace::device {

struct TensorMemory {
  std::uint64_t live_bytes = 0;
  std::uint64_t peak_bytes = 0;  // since the last reset
};

// Counts and limits tensors that are made after this call. Later calls do nothing. Any thread may call it, but not while
// another thread makes its first tensor.
void count_tensor_memory();

// The counts of CPU tensors, which are zero before count_tensor_memory(). For a GPU, the counts of LibTorch's allocator. Does
// not wait for a device.
[[nodiscard]] TensorMemory tensor_memory(c10::Device device = c10::Device(c10::kCPU));
void reset_peak_tensor_memory(c10::Device device = c10::Device(c10::kCPU));  // sets the peak to the present bytes
void release_cached_memory(c10::Device device);  // frees memory that LibTorch, or on a CPU the C library, keeps for later tensors

// Limits the bytes of CPU tensors that may exist; 0 = only the system's limit. A tensor beyond the limit throws
// c10::OutOfMemoryError before the system is asked. Without the limit, the system would promise more memory than it has, and
// end the process later.
void limit_tensor_memory(std::uint64_t bytes) noexcept;
[[nodiscard]] std::uint64_t tensor_memory_limit() noexcept;
// Limits the bytes of the process's memory, including memory that the tensor counters do not see; 0 = no limit. The limit is
// checked after every 16 MB of new tensors.
void limit_resident_memory(std::uint64_t bytes) noexcept;  // compared with private_resident_bytes()
[[nodiscard]] std::uint64_t resident_memory_limit() noexcept;

}  // namespace millrace::device
