// Time: a steady clock, the wall clock, and how long this process has been alive.
#pragma once

#include <cstdint>

namespace millrace {

[[nodiscard]] std::int64_t steady_nanoseconds() noexcept;  // never runs backwards; its zero point is arbitrary
[[nodiscard]] double steady_seconds() noexcept;
// Returns the seconds since the kernel started this process, including the time to load the program. If /proc does not give the
// start, returns the seconds since the first call of this function.
[[nodiscard]] double seconds_since_process_start() noexcept;
[[nodiscard]] double unix_seconds() noexcept;  // wall clock, for logs

}  // namespace millrace
