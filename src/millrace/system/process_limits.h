// Limits that the system sets for this process: for checks made before a library hits a limit, and for messages that name it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace millrace {

// The current soft limit (RLIMIT_AS, …), in the unit of getrlimit; nullopt = no limit.
[[nodiscard]] std::optional<std::uint64_t> limit_of(int resource) noexcept;

// Address space in use, as RLIMIT_AS counts it; 0 if /proc is not mounted. Allocates nothing, so it can be called when memory has
// run out.
[[nodiscard]] std::uint64_t mapped_bytes() noexcept;

// Address space that may still be mapped; nullopt = no limit (ulimit -v).
[[nodiscard]] std::optional<std::uint64_t> address_space_left() noexcept;

// If address space is limited, libraries below LibTorch crash when it runs out: Millrace's own large allocations leave them this
// much of it. 0 = nothing is reserved, as at the start. Any thread.
void keep_address_space(std::uint64_t bytes) noexcept;
[[nodiscard]] std::uint64_t kept_address_space() noexcept;
// Whether this much more can be mapped in addition to the reserved space; true if there is no limit or nothing is reserved.
[[nodiscard]] bool may_map(std::uint64_t bytes) noexcept;

[[nodiscard]] std::uint64_t thread_stack_bytes() noexcept;  // mapped for each new thread

// What to print, before exit code 1, if the limits of this process do not even let a program start that links LibTorch; "" if
// they do. LibTorch's libraries are mapped and run code before main: if they fail, the program can't print anything.
[[nodiscard]] std::string start_refusal();

}  // namespace millrace
