// Classifies an exception: whether less memory would help, and whether the device still responds.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "millrace/base/error.h"

namespace millrace::device {

enum class ErrorKind : std::uint8_t {
  other,
  out_of_memory,  // of host or device; the next operation may succeed
  device_lost     // a kernel crashed or the card failed: each later call of this process to the GPU fails too
};

// Handles exceptions of LibTorch, of the libraries below it, and of the standard library. CUDA has no type for most of them:
// errors of cuBLAS, cuDNN and cuFFT are recognised by the name of their status.
[[nodiscard]] ErrorKind kind_of(const std::exception& error) noexcept;

[[nodiscard]] bool is_out_of_memory(const std::exception& error) noexcept;
[[nodiscard]] bool is_device_lost(const std::exception& error) noexcept;

// The message for the user about a lost device. `where`: the step; `first`: advice that comes before the rest, ended by "; ".
[[nodiscard]] Message lost_device(const std::exception& error, std::string where, const std::string& first = "");

}  // namespace millrace::device
