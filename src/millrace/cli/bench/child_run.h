// Runs this program in a separate process, because some rows of the switchboard apply to a whole process and can be compared in
// no other way.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/json.h"

namespace millrace::cli {

// Runs /proc/self/exe with these words. Throws UsageError with the last lines of its stderr if it fails.
void child_run(const std::vector<std::string>& words);

// Runs /proc/self/exe with these words and returns the JSON document that it prints on stdout. Throws UsageError with the last
// lines of its stderr if it fails or prints anything else.
[[nodiscard]] Json child_json(const std::vector<std::string>& words);

}  // namespace millrace::cli
