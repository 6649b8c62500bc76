// Finds where in the program a thread crashed, for the signal handler: addresses, and the line of the author's source.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "millrace/system/handler_text.h"

namespace millrace {

// Stores the addresses of the program and its libraries, and the program's path. Call it before a crash, outside of signal
// handlers.
void prepare_crash_sites() noexcept;

struct CrashSite {
  std::array<std::uintptr_t, 12> calls{};  // addresses of calls as offsets in the program's file, the innermost call first
  std::size_t count = 0;
  std::string_view library;  // name of the file that holds the instruction at fault; "" = unknown
  bool in_program = false;   // true: that file is the program itself
};
// Returns the stack pointer at the instruction at fault; 0 if it is unknown. `context`: the handler's third argument.
[[nodiscard]] std::uintptr_t stack_pointer(const void* context) noexcept;
// Returns where the thread crashed. `context`: the handler's third argument. Walks the stack, so a damaged stack may end the
// process here.
[[nodiscard]] CrashSite crash_site(const void* context) noexcept;

[[nodiscard]] std::string_view program_path() noexcept;
[[nodiscard]] std::string_view program_name() noexcept;
// Adds "recipe.cpp:92" to `text`: the innermost call in a source that is neither Millrace's nor an installed header. The path is
// relative to the current folder if the source lies below that folder. Returns false if no such line is known, because the
// program has no debug information or addr2line (part of the compiler) is missing. Runs addr2line, so other threads continue for
// a moment.
bool add_author_line(const CrashSite& site, HandlerText& text) noexcept;

}  // namespace millrace
