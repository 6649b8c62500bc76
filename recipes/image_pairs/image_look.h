// What is in the images of a run and in what is said of them: what is unlike all else is named before training.
#pragma once

#include <string>
#include <vector>

#include "recipes/image_pairs/config.h"
#include "recipes/image_pairs/pairs.h"

namespace millrace::recipes::image_pairs {

// A line for each of: scores far outside of those of the other images, pairs of an image with itself.
[[nodiscard]] std::vector<std::string> look_at_scores(const PairFiles& files);

// By what is learned of each image, or of two hundred, spread over all. A line for each of: one colour throughout, grey images
// among coloured ones. `passes`: images that can't be read are passed over; else DataError.
[[nodiscard]] std::vector<std::string> look_at_images(const std::vector<ImageFile>& images, const RecipeConfig& recipe,
                                                      bool passes);

}  // namespace millrace::recipes::image_pairs
