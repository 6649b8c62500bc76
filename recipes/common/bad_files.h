// Files that can't be used, under the policy for samples that can't be read: data.bad_samples and data.max_bad_fraction.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/train/recipe/config.h"

namespace millrace::recipes {

// True if a sample that can't be read does not end the run.
[[nodiscard]] inline bool passes_bad(const DataConfig& input) { return input.bad_samples != data::BadSamples::fail; }

// Does nothing if `bad` of `all` may be bad, as the loader counts an epoch's samples; else a DataError that names the limit and
// the last problem. `what` names them: "signal files of the training".
void refuse_too_many(std::int64_t bad, std::int64_t all, const std::string& what, const Problem& last, const DataConfig& input);

// "2 of 12 signal files can't be used, the first: …; data.bad_samples=skip passes over their samples"; "" if there is no problem.
[[nodiscard]] std::string notice_of_bad(const std::vector<Problem>& problems, std::int64_t all, const std::string& what,
                                        const DataConfig& input);

}  // namespace millrace::recipes
