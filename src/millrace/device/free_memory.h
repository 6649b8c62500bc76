// Measures memory that is still available.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace millrace {

std::uint64_t available_memory_bytes();  // of system/machine.h

}  // namespace millrace

namespace millrace::device {

using millrace::available_memory_bytes;
// Memory for more tensors: on a CPU the system's free memory; on a GPU the memory that its driver has free for any program, and
// LibTorch's unused memory there. Asks the driver: do not call it within a step.
[[nodiscard]] std::uint64_t free_tensor_memory(c10::Device device);

}  // namespace millrace::device
