// The two implementations of an operation.
#pragma once

#include <cstdint>

namespace millrace::kernels {

// Our kernel, or LibTorch's own operations.
enum class Implementation : std::uint8_t { ours, library };

}  // namespace millrace::kernels
