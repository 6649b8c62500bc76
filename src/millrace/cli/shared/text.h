// Output of commands: plain text on stdout, one JSON document for --json.
#pragma once

#include <string_view>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/json.h"

namespace millrace::cli {

void print(std::string_view text);        // to stdout, unchanged
void print_json(const Json& value);       // indented, with a final newline; bytes that are not UTF-8 are replaced
void print_json_line(const Json& value);  // on one line, flushed

// The error when a command can't write its output: the command has failed then, because the output is its result.
[[nodiscard]] Error output_error();

}  // namespace millrace::cli
