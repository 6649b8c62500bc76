// The heap of the C library.
#pragma once

#include <cstdint>

namespace millrace::device {

// Bytes that it got from the system, used and free. With the row keep_memory on it never shrinks: it is the peak.
[[nodiscard]] std::uint64_t heap_bytes() noexcept;

}  // namespace millrace::device
