// The version of this Millrace; equals the CMake project's (tools/tidy.py compares them).
#pragma once

#include <string_view>

namespace millrace {

inline constexpr std::string_view kVersion = "0.1.0";

}  // namespace millrace
