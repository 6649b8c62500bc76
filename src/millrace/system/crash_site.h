// Where in the program a thread crashed, for the signal handler: addresses, and the line of the author's source.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "millrace/system/handler_text.h"

namespace millrace {

// Notes the program and its libraries, and where the program is. Called before a crash, outside of handlers.
void prepare_crash_sites() noexcept;

struct CrashSite {
  std::array<std::uintptr_t, 12> calls{};  // places in the program's file, the innermost first
  std::size_t count = 0;
  std::string_view library;  // name of the file that holds the instruction at fault; "" = unknown
  bool in_program = false;   // that file is the program itself
};
// The stack pointer of the instruction at fault; 0 = unknown. `context`: the handler's third argument.
[[nodiscard]] std::uintptr_t stack_pointer(const void* context) noexcept;
// `context`: the handler's third argument. Walks the stack; a stack that is damaged may end the process here.
[[nodiscard]] CrashSite crash_site(const void* context) noexcept;

[[nodiscard]] std::string_view program_path() noexcept;
[[nodiscard]] std::string_view program_name() noexcept;
// Adds "recipe.cpp:92", of the innermost call in a source that is neither Millrace's nor an installed header, relative to the
// current folder if it is below it. False if no such line is known: the program has no debug information, or addr2line, which
// comes with the compiler, is not there. Runs that program: a moment in which other threads go on.
bool add_author_line(const CrashSite& site, HandlerText& text) noexcept;

}  // namespace millrace
