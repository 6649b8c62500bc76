// The program's message and exit code when a command throws.
#pragma once

#include <exception>
#include <string>

namespace millrace::cli {

struct Failure {
  std::string text;  // three parts, without a final newline
  int exit_code = 1;
};

// Millrace's errors are unchanged; errors of LibTorch, the memory allocator, the file system and the standard library get the
// same form.
[[nodiscard]] Failure describe(const std::exception_ptr& exception);

}  // namespace millrace::cli
