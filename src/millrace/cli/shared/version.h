// The output of `millrace --version`.
#pragma once

#include <string>

namespace millrace::cli {

// Versions of Millrace, LibTorch, compiler and CPU, one per line.
[[nodiscard]] std::string version_text();
[[nodiscard]] std::string version_number();  // "0.1.0"

}  // namespace millrace::cli
