// Time: a steady clock, and how long this process has been alive.
#pragma once

#include <cstdint>

namespace millrace {

[[nodiscard]] std::int64_t steady_nanoseconds() noexcept;  // never goes back; the zero point means nothing
[[nodiscard]] double steady_seconds() noexcept;
// Seconds since the kernel started this process, program loading included; since the first call here where /proc can't say.
[[nodiscard]] double seconds_since_process_start() noexcept;
[[nodiscard]] double unix_seconds() noexcept;  // wall clock, for logs

}  // namespace millrace
