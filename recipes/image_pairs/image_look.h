// Looks, before training, for images and scores that differ from all others. Each kind of difference gets a line for the user.
#pragma once

#include <string>
#include <vector>

#include "recipes/image_pairs/config.h"
#include "recipes/image_pairs/pairs.h"

namespace millrace::recipes::image_pairs {

// Returns a line for scores far outside the range of the other images, and a line for pairs of an image with itself.
[[nodiscard]] std::vector<std::string> look_at_scores(const PairFiles& files);

// Looks at the pixels of up to 200 images as the network gets them, spread evenly over all. Returns up to two lines: one on
// images of a single colour, and one on grey images among coloured ones. `passes`: true skips images that can't be read; false
// throws DataError.
[[nodiscard]] std::vector<std::string> look_at_images(const std::vector<ImageFile>& images, const RecipeConfig& recipe,
                                                      bool passes);

}  // namespace millrace::recipes::image_pairs
