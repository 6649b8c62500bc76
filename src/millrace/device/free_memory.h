// Measures memory that is still available.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace millrace::device {

// Free memory of the machine, within the limits of the control group and of `ulimit -v`. Reads system files: do not call it
// within a step.
[[nodiscard]] std::uint64_t available_memory_bytes();
// Memory for more tensors. On a CPU: the system's free memory. On a GPU: memory that the driver has free for any program, and
// LibTorch's unused memory. Asks the driver: do not call it within a step.
[[nodiscard]] std::uint64_t free_tensor_memory(c10::Device device);

}  // namespace millrace::device
