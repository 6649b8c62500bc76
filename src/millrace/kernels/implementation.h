// The two implementations that an operation has.
#pragma once

#include <cstdint>

namespace millrace::kernels {

// A kernel of Millrace, or LibTorch's own operations.
enum class Implementation : std::uint8_t { ours, library };

}  // namespace millrace::kernels
