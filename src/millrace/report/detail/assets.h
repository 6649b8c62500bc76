// The style and the script of a report.
#pragma once

#include <string_view>

namespace millrace::report::detail {

extern const std::string_view kStyle;
extern const std::string_view kScript;      // diagrams
extern const std::string_view kPageScript;  // what they share: runs, smoothing, pictures, loading again; comes after kScript

}  // namespace millrace::report::detail
