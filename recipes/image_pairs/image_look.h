// Checks of a run's images and scores before training: what is unlike all the others gets a line.
#pragma once

#include <string>
#include <vector>

#include "recipes/image_pairs/config.h"
#include "recipes/image_pairs/pairs.h"

namespace millrace::recipes::image_pairs {

// Returns one line for each kind of odd data: scores far outside those of the other images, pairs of an image with itself.
[[nodiscard]] std::vector<std::string> look_at_scores(const PairFiles& files);

// Checks the pixels of each image as the network gets them, or of two hundred images, spread over all. One line for each of: one
// colour throughout, grey images among coloured ones. `passes`: unreadable images are skipped; otherwise they are a DataError.
[[nodiscard]] std::vector<std::string> look_at_images(const std::vector<ImageFile>& images, const RecipeConfig& recipe,
                                                      bool passes);

}  // namespace millrace::recipes::image_pairs
