// The message that the program prints if a command throws, and its exit code.
#pragma once

#include <exception>
#include <string>

namespace millrace::cli {

struct Failure {
  std::string text;  // the error in its three parts (what, where, next); without a line end
  int exit_code = 1;
};

// The failure for an exception. Millrace's errors keep their text; errors of LibTorch, the memory allocator, the file system and
// the standard library get the same form.
[[nodiscard]] Failure describe(const std::exception_ptr& exception);

}  // namespace millrace::cli
