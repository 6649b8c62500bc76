// Bytes of CPU tensors alive: an allocator of ours stands before LibTorch's own and counts. What libraries below LibTorch take
// for themselves (scratch space of convolutions) is not seen.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "millrace/device/free_memory.h"

namespace millrace::device {

struct TensorMemory {
  std::uint64_t live_bytes = 0;
  std::uint64_t peak_bytes = 0;  // since the last reset
};

// Tensors made from then on are counted and limited. Once is enough; any thread, but not while another one makes its first
// tensor.
void count_tensor_memory();

// Of a CPU zeros before count_tensor_memory(), of a GPU what LibTorch's allocator counts. Nothing here waits for a device.
[[nodiscard]] TensorMemory tensor_memory(c10::Device device = c10::Device(c10::kCPU));
void reset_peak_tensor_memory(c10::Device device = c10::Device(c10::kCPU));  // to what is alive
void release_cached_memory(c10::Device device);  // that LibTorch, on a CPU the C library, keeps for tensors to come

// Most bytes of CPU tensors alive; 0 = as the system has it. A tensor that would go beyond throws c10::OutOfMemoryError before
// the system is asked, which promises more than it has and would end the process later.
void limit_tensor_memory(std::uint64_t bytes) noexcept;
[[nodiscard]] std::uint64_t tensor_memory_limit() noexcept;
// The same for the memory of the process, with what no tensor counter sees; 0 = none. Looked at every 16 MB of new tensors.
void limit_resident_memory(std::uint64_t bytes) noexcept;  // private_resident_bytes()
[[nodiscard]] std::uint64_t resident_memory_limit() noexcept;

}  // namespace millrace::device
