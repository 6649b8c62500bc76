// What is in the files of a sky, beside what they say of it: one that is unlike all others of its kind is named before training.
#pragma once

#include <string>
#include <vector>

#include "recipes/cosmology/sky_files.h"

namespace millrace::recipes::cosmology {

// Looks into each file of both splits, or into as many, spread over all, as a moment allows. A line for each of: values that
// are no numbers, zeros or one value throughout, baselines of a foreground that are zero in a file and not in most, another power
// (by 10,000 and more), a spectrum the other way round, neighbouring channels that have little in common; one more where the
// signal is stronger than the foreground. Files that can't be read are passed over: the loader has a policy for them.
[[nodiscard]] std::vector<std::string> look_at_files(const RecipeConfig& recipe, const Sky& sky);

}  // namespace millrace::recipes::cosmology
