// Runs this program in a separate process: switchboard rows that apply to a whole process can't be compared otherwise.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/json.h"

namespace millrace::cli {

// Runs /proc/self/exe with these words. UsageError with the last lines of its stderr if it fails.
void child_run(const std::vector<std::string>& words);

// Runs /proc/self/exe with these words and returns the JSON document from its stdout. UsageError with the last lines of its
// stderr if it fails or prints anything else.
[[nodiscard]] Json child_json(const std::vector<std::string>& words);

}  // namespace millrace::cli
