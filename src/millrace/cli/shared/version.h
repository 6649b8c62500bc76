// The text of `millrace --version`.
#pragma once

#include <string>

namespace millrace::cli {

// The versions of Millrace, LibTorch and the compiler, and the CPU, a line each.
[[nodiscard]] std::string version_text();
[[nodiscard]] std::string version_number();  // "0.1.0"

}  // namespace millrace::cli
