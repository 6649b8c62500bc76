// The line of a program's own source where an exception was thrown.
//
//   try {
//     const ThrowWatch watch;
//     call_somebody();
//   } catch (const std::exception&) {
//     say(throw_site({"/src/ours/"}));  // "recipe.cpp:92"
//   }
//
// The line is known in programs that carry debug information (CMAKE_BUILD_TYPE=Debug or RelWithDebInfo) where addr2line, which
// comes with the compiler, is installed. In such a program this file's __cxa_throw replaces that of the C++ library, as the
// Itanium C++ ABI allows: it notes the addresses of the callers and calls the library's.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace millrace {

// While it lives, each throw in this thread is noted, which costs some microseconds per throw. Watches nest.
class ThrowWatch {
 public:
  ThrowWatch() noexcept;
  ~ThrowWatch();
  ThrowWatch(const ThrowWatch&) = delete;
  ThrowWatch& operator=(const ThrowWatch&) = delete;
  static void note() noexcept;  // called by __cxa_throw

 private:
  const ThrowWatch* outer_;
};

// "FILE:LINE" of this thread's latest noted throw: the innermost call above the watch that lies in a source of the program, as a
// path relative to the current folder if it lies below it. A source of the program lies in no include folder, and its path
// contains none of `others`. "" if no such line is known. Call it before anything else is thrown; it runs another program, which
// takes a moment.
[[nodiscard]] std::string throw_site(std::span<const std::string_view> others);

}  // namespace millrace
