// Measures memory that is still available.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace millrace {

std::uint64_t available_memory_bytes();  // described in system/machine.h

}  // namespace millrace

namespace millrace::device {

using millrace::available_memory_bytes;
// Returns how many bytes more tensors can use. On a CPU this is the system's free memory. On a GPU it is the memory that the
// driver has free for any program, plus memory that LibTorch holds there but does not use. Asks the driver, so do not call it
// within a step.
[[nodiscard]] std::uint64_t free_tensor_memory(c10::Device device);

}  // namespace millrace::device
