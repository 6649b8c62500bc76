// Output of commands on stdout: plain text, or a JSON document with --json.
#pragma once

#include <string_view>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/json.h"

namespace millrace::cli {

void print(std::string_view text);        // to stdout, unchanged
void print_json(const Json& value);       // indented, with a line end; bytes that are not UTF-8 are replaced
void print_json_line(const Json& value);  // on one line, and flushed

// The error if a command can't write its output. The command has then failed, because the output is its result.
[[nodiscard]] Error output_error();

}  // namespace millrace::cli
