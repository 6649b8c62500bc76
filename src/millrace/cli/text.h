// Output of commands: plain text and tables on stdout, one JSON document for --json.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/json.h"

namespace millrace::cli {

void print(std::string_view text);        // to stdout, as it is
void print_json(const Json& value);       // indented, with a final newline; bytes that are no UTF-8 are replaced
void print_json_line(const Json& value);  // on one line, flushed

// For a command whose output is its result, and was lost.
[[nodiscard]] Error output_error();

// Columns padded to their widest cell, two spaces apart; a column whose cells (but the first row's) all begin with a digit, sign
// or dash stands to the right.
[[nodiscard]] std::string table(const std::vector<std::vector<std::string>>& rows);

}  // namespace millrace::cli
