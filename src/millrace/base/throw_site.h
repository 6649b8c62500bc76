// The line of a program's own source where an exception was thrown.
//
//   try {
//     const ThrowWatch watch;
//     call_somebody();
//   } catch (const std::exception&) {
//     say(throw_site({"/src/ours/"}));  // "recipe.cpp:92"
//   }
//
// It is known in programs that carry debug information (CMAKE_BUILD_TYPE=Debug or RelWithDebInfo) where addr2line is installed,
// which comes with the compiler. In a program that uses it, this file's __cxa_throw stands before that of the C++ library, as the
// Itanium C++ ABI lets a program do: it notes the addresses of the callers and hands on.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace millrace {

// While it lives, a throw in this thread is noted: some microseconds for each throw, nothing else. Watches nest.
class ThrowWatch {
 public:
  ThrowWatch() noexcept;
  ~ThrowWatch();
  ThrowWatch(const ThrowWatch&) = delete;
  ThrowWatch& operator=(const ThrowWatch&) = delete;
  static void note() noexcept;  // by __cxa_throw

 private:
  const ThrowWatch* outer_;
};

// "FILE:LINE" of the innermost call between the watch and this thread's latest noted throw that stands in a source of the
// program, as a path from the current folder where it lies below. A source of the program is one that lies in no include folder,
// and whose path holds none of `others`. "" where none is known. Call it before anything else is thrown; it asks another program,
// which takes a moment.
[[nodiscard]] std::string throw_site(std::span<const std::string_view> others);

}  // namespace millrace
