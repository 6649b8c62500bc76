// Runs this program in a separate process, because some rows of the switchboard apply to a whole process and can be compared in
// no other way.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/json.h"

namespace millrace::cli {

// Runs /proc/self/exe with these words. If the process fails, throws UsageError with the last lines of the process's stderr.
void child_run(const std::vector<std::string>& words);

// Runs /proc/self/exe with these words and returns the JSON document that the process prints on stdout. If the process fails or
// prints anything else, throws UsageError with the last lines of the process's stderr.
[[nodiscard]] Json child_json(const std::vector<std::string>& words);

}  // namespace millrace::cli
