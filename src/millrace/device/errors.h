// Classifies an exception: says whether using less memory would have avoided it, and whether the device still responds.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "millrace/base/error.h"

namespace millrace::device {

enum class ErrorKind : std::uint8_t {
  other,
  out_of_memory,  // host or device ran out of memory; the next operation may succeed
  device_lost     // a kernel crashed or the card failed; every later call of this process to the GPU fails too
};

// Handles exceptions of LibTorch, of the libraries below it, and of the standard library. CUDA's libraries have no exception
// types for most of their errors, so errors of cuBLAS, cuDNN and cuFFT are recognised by the name of their status.
[[nodiscard]] ErrorKind kind_of(const std::exception& error) noexcept;

[[nodiscard]] bool is_out_of_memory(const std::exception& error) noexcept;
[[nodiscard]] bool is_device_lost(const std::exception& error) noexcept;

// The message for the user about a lost device. `where` names the step. `first` is advice that comes before the other advice
// and ends with "; ".
[[nodiscard]] Message lost_device(const std::exception& error, std::string where, const std::string& first = "");

}  // namespace millrace::device
