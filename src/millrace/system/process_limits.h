// Limits that the system sets for this process. Code checks them before a library hits a limit, and names them in messages.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace millrace {

// Returns the current soft limit (RLIMIT_AS, …), in the unit of getrlimit; nullopt = no limit.
[[nodiscard]] std::optional<std::uint64_t> limit_of(int resource) noexcept;

// Returns the address space in use, as RLIMIT_AS counts it; 0 if /proc is not mounted. Allocates nothing, so it can be called
// when memory has run out.
[[nodiscard]] std::uint64_t mapped_bytes() noexcept;

// Returns the address space that may still be mapped; nullopt = no limit (ulimit -v).
[[nodiscard]] std::optional<std::uint64_t> address_space_left() noexcept;

// Reserves this much of a limited address space for libraries below LibTorch, which crash when address space runs out. may_map()
// then refuses Millrace's own large allocations in time. 0, the initial value, reserves nothing. Any thread may call it.
void keep_address_space(std::uint64_t bytes) noexcept;
[[nodiscard]] std::uint64_t kept_address_space() noexcept;
// Returns true if `bytes` more can be mapped without the reserved space. Always returns true if address space is not limited, or
// if nothing is reserved.
[[nodiscard]] bool may_map(std::uint64_t bytes) noexcept;

[[nodiscard]] std::uint64_t thread_stack_bytes() noexcept;  // returns the address space that each new thread takes for its stack

// Returns the text to print before exit code 1 if this process's limits are too low for a program that links LibTorch to start;
// "" if they suffice. The check is needed because LibTorch's libraries are mapped and run code before main. If they fail there,
// the program can't print anything.
[[nodiscard]] std::string start_refusal();

}  // namespace millrace
