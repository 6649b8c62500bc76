// Looks, before training, for volumes of a run that differ from all others. Each kind of difference gets a line for the user.
#pragma once

#include <string>
#include <vector>

#include "recipes/autoencoder_3d/volume_source.h"

namespace millrace::recipes::autoencoder_3d {

// Looks at the headers. Returns a line about files whose axes have another direction than in most files. Unless recipe.spacing
// sets the voxel size, also returns a line about files whose voxels have another size than in most files.
[[nodiscard]] std::vector<std::string> look_at_headers(const VolumeFiles& files, const RecipeConfig& recipe);

// Examines the values of the first volume of each file. If that would take too long, examines fewer files, spread over the list.
// Returns a line for each kind of odd file: all values are equal; only a few different values, as in labels; the median is at
// the other end of the range than in most files. `passes`: true skips files that can't be read; false throws DataError.
[[nodiscard]] std::vector<std::string> look_at_values(const VolumeFiles& files, bool passes);

}  // namespace millrace::recipes::autoencoder_3d
