// A run of this program in a process of its own: rows of the switchboard that belong to a process can't be compared otherwise.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/json.h"

namespace millrace::cli {

// Runs /proc/self/exe with these words. UsageError with the last lines of its stderr when it fails.
void child_run(const std::vector<std::string>& words);

// Runs /proc/self/exe with these words and returns the JSON document it prints on stdout. UsageError with the last lines of its
// stderr when it fails or prints something else.
[[nodiscard]] Json child_json(const std::vector<std::string>& words);

}  // namespace millrace::cli
