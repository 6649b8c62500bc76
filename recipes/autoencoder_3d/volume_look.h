// What is in the volumes of a run: one that is unlike all others is named before training.
#pragma once

#include <string>
#include <vector>

#include "recipes/autoencoder_3d/volume_source.h"

namespace millrace::recipes::autoencoder_3d {

// By the headers: files whose axes run another way than in most files, and, where recipe.spacing does not say what is due, files
// whose voxels have another size. A line each.
[[nodiscard]] std::vector<std::string> look_at_headers(const VolumeFiles& files, const RecipeConfig& recipe);

// By the values of the first volume of each file, or of as many files, spread over all, as a moment allows. A line for each of:
// one value throughout, a few values as labels have them, values that lie at the other end of their range. `passes`: files that
// can't be read are passed over; else DataError.
[[nodiscard]] std::vector<std::string> look_at_values(const VolumeFiles& files, bool passes);

}  // namespace millrace::recipes::autoencoder_3d
