// What `millrace --version` says.
#pragma once

#include <string>

namespace millrace::cli {

// Millrace, LibTorch, compiler and CPU, one a line.
[[nodiscard]] std::string version_text();
[[nodiscard]] std::string version_number();  // "0.1.0"

}  // namespace millrace::cli
