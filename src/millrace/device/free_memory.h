// Memory that is still to be had.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace millrace::device {

// Of the machine, below the limits of the control group and of `ulimit -v`. Reads files of the system: not within a step.
[[nodiscard]] std::uint64_t available_memory_bytes();
// What more tensors may take: of a CPU what the system has free, of a GPU what its driver has free for whatever program, and what
// LibTorch keeps there unused. Asks the driver: not within a step.
[[nodiscard]] std::uint64_t free_tensor_memory(c10::Device device);

}  // namespace millrace::device
