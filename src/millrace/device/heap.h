// Measures the heap of the C library.
#pragma once

#include <cstdint>

namespace millrace::device {

// Bytes that the heap got from the system, used and free. After keep_freed_memory() the heap never shrinks, so this number is
// the heap's peak.
[[nodiscard]] std::uint64_t heap_bytes() noexcept;

}  // namespace millrace::device
