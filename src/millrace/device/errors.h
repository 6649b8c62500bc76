// What an exception says of the device that threw it: whether less memory would help, and whether the device still answers.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "millrace/base/error.h"

namespace millrace::device {

enum class ErrorKind : std::uint8_t {
  other,
  out_of_memory,  // of host or device; the next operation may go through
  device_lost     // a kernel crashed or the card failed: each later call of this process to the GPU fails too
};

// Of LibTorch's exceptions, of those of the libraries below it, and of the standard library's. CUDA has no type for most of
// them: what cuBLAS, cuDNN and cuFFT say is known by the name of their status.
[[nodiscard]] ErrorKind kind_of(const std::exception& error) noexcept;

[[nodiscard]] bool is_out_of_memory(const std::exception& error) noexcept;
[[nodiscard]] bool is_device_lost(const std::exception& error) noexcept;

// What a user is told of a lost device. `where`: the step; `first`: what comes before the rest of what to do, ended by "; ".
[[nodiscard]] Message lost_device(const std::exception& error, std::string where, const std::string& first = "");

}  // namespace millrace::device
