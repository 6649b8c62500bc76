// Finds the line of a program's own source where an exception was thrown.
//
//   try {
//     const ThrowWatch watch;
//     call_recipe();
//   } catch (const std::exception&) {
//     print(throw_site({"/src/ours/"}));  // "recipe.cpp:92"
//   }
//
// The line is known in programs that carry debug information (CMAKE_BUILD_TYPE=Debug or RelWithDebInfo) if addr2line, which
// comes with the compiler, is installed. In such a program this file's __cxa_throw replaces that of the C++ library, as the
// Itanium C++ ABI allows. The replacement notes the addresses of the callers and then calls the library's function.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace millrace {

// While this object exists, each throw in this thread is noted, which costs some microseconds per throw. Such objects may nest.
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

// Returns "FILE:LINE" of the latest throw noted in this thread. Of the calls made since the watch began, the innermost call in a
// source of the program gives the line. Sources in an include folder, and sources with one of `others` in their path, do not
// count as the program's. The path is relative to the current folder if the source lies below that folder. Returns "" if no such
// line is known. Call this before another exception is thrown; it runs another program, which takes a moment.
[[nodiscard]] std::string throw_site(std::span<const std::string_view> others);

}  // namespace millrace
