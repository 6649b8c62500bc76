// The version of this Millrace. tools/tidy.py checks that it equals the version of the CMake project.
#pragma once

#include <string_view>

namespace millrace {

inline constexpr std::string_view kVersion = "0.1.0";

}  // namespace millrace
