// The style and the script of a report.
#pragma once

#include <string_view>

namespace millrace::report::detail {

extern const std::string_view kStyle;
extern const std::string_view kScript;      // script of the diagrams
extern const std::string_view kPageScript;  // script of the page: runs, smoothing, pictures, reload; comes after kScript

}  // namespace millrace::report::detail
