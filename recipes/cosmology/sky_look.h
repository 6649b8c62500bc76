// Looks, before training, for files of a sky that differ from all others of their kind. Each kind of difference gets a line for
// the user.
#pragma once

#include <string>
#include <vector>

#include "recipes/cosmology/sky_files.h"

namespace millrace::recipes::cosmology {

// Examines the values of each file of both splits. If that would take too long, examines fewer files, spread over the list.
// Returns a line for each of these faults: values that are NaN or infinite; zeros or a single value throughout a file; baselines
// of a foreground that are zero in a file but not in most; a power that differs by a factor of 10,000 or more; a reversed
// spectrum; neighbouring channels with little in common; a signal that is stronger than the foreground. Files that can't be read
// are skipped, because the loader has a policy for them.
[[nodiscard]] std::vector<std::string> look_at_files(const RecipeConfig& recipe, const Sky& sky);

}  // namespace millrace::recipes::cosmology
