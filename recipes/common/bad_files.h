// Applies the policy for bad samples (data.bad_samples and data.max_bad_fraction) to files that can't be used.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/train/recipe/config.h"

namespace millrace::recipes {

// True if the run continues when a sample can't be read.
[[nodiscard]] inline bool passes_bad(const DataConfig& input) { return input.bad_samples != data::BadSamples::fail; }

// Throws DataError, as the loader does, if bad / all, the share of bad samples, exceeds data.max_bad_fraction. The message gives
// the limit and the last problem. `what` names the samples, such as "signal files of the training".
void refuse_too_many(std::int64_t bad, std::int64_t all, const std::string& what, const Problem& last, const DataConfig& input);

// A line such as "2 of 12 signal files can't be used, the first: …; their samples are treated as data.bad_samples says: skip".
// "" if there is no problem.
[[nodiscard]] std::string notice_of_bad(const std::vector<Problem>& problems, std::int64_t all, const std::string& what,
                                        const DataConfig& input);

}  // namespace millrace::recipes
