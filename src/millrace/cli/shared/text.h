// Output of commands: plain text on stdout, one JSON document for --json.
#pragma once

#include <string_view>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/json.h"

namespace millrace::cli {

void print(std::string_view text);        // to stdout, as it is
void print_json(const Json& value);       // indented, with a final newline; bytes that are no UTF-8 are replaced
void print_json_line(const Json& value);  // on one line, flushed

// For a command whose output is its result, and was lost.
[[nodiscard]] Error output_error();

}  // namespace millrace::cli
