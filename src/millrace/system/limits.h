// What the system grants this process: for checks made before a library meets a limit, and for messages that name it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace millrace {

// The soft limit (RLIMIT_AS, …) as it holds now, in the unit of getrlimit; nullopt = none.
[[nodiscard]] std::optional<std::uint64_t> limit_of(int resource) noexcept;

// Address space in use, as RLIMIT_AS counts it; 0 where /proc is not mounted. Allocates nothing, so that it serves where memory
// has run out.
[[nodiscard]] std::uint64_t mapped_bytes() noexcept;

// Address space that may still be mapped; nullopt = no limit (ulimit -v).
[[nodiscard]] std::optional<std::uint64_t> address_space_left() noexcept;

// Where address space is limited, libraries below LibTorch crash when it ends: what is large and ours leaves them this much of
// it. 0 = nothing is kept, as at the start. Any thread.
void keep_address_space(std::uint64_t bytes) noexcept;
[[nodiscard]] std::uint64_t kept_address_space() noexcept;
// Whether that much more can be mapped beside what is kept; true without a limit or where nothing is kept.
[[nodiscard]] bool may_map(std::uint64_t bytes) noexcept;

[[nodiscard]] std::uint64_t thread_stack_bytes() noexcept;  // that a new thread maps

// What to say and end with exit code 1 when the limits of this process do not even let a program start that links LibTorch; ""
// when they do. Its libraries are mapped, and run code of theirs, before main: where they fail, the program can say nothing.
[[nodiscard]] std::string start_refusal();

}  // namespace millrace
