// Checks of the values in a sky's files before training: a file that is unlike all others of its kind gets a line.
#pragma once

#include <string>
#include <vector>

#include "recipes/cosmology/sky_files.h"

namespace millrace::recipes::cosmology {

// Checks the values of each file of both splits, or of as many, spread over all, as a moment allows. One line for each of: values
// that are not numbers, zeros or one value throughout, baselines of a foreground that are zero in a file and not in most, another
// power (by 10,000 and more), a reversed spectrum, neighbouring channels with little in common; one more if the signal is
// stronger than the foreground. Unreadable files are skipped: the loader has a policy for them.
[[nodiscard]] std::vector<std::string> look_at_files(const RecipeConfig& recipe, const Sky& sky);

}  // namespace millrace::recipes::cosmology
