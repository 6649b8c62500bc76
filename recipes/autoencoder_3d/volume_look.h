// Checks of a run's volumes before training: a file that is unlike all others gets a line.
#pragma once

#include <string>
#include <vector>

#include "recipes/autoencoder_3d/volume_source.h"

namespace millrace::recipes::autoencoder_3d {

// Checks the headers: files whose axes run another way than in most files and, unless recipe.spacing sets the voxel size, files
// whose voxels have another size. One line for each.
[[nodiscard]] std::vector<std::string> look_at_headers(const VolumeFiles& files, const RecipeConfig& recipe);

// Checks the values of the first volume of each file, or of as many files, spread over all, as a moment allows. Returns one line
// for each kind of odd file: with one value throughout; with a few values, as in labels; with a middle value at the other end of
// the range than in most files. `passes`: unreadable files are skipped; otherwise they are a DataError.
[[nodiscard]] std::vector<std::string> look_at_values(const VolumeFiles& files, bool passes);

}  // namespace millrace::recipes::autoencoder_3d
