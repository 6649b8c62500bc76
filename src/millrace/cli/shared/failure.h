// What the program says and returns when a command throws.
#pragma once

#include <exception>
#include <string>

namespace millrace::cli {

struct Failure {
  std::string text;  // three parts, without a final newline
  int exit_code = 1;
};

// Errors of ours as they are; those of LibTorch, the memory allocator, the file system and the standard library in the same form.
[[nodiscard]] Failure describe(const std::exception_ptr& exception);

}  // namespace millrace::cli
