// The commands of image_pairs, in addition to those of all recipes.
#pragma once

#include <functional>

#include "millrace/train/recipe/entry.h"

namespace millrace::recipes::image_pairs {

// `row`: this recipe's Entry.
[[nodiscard]] RecipeCommand rank_command(std::function<Entry()> row);  // millrace rank: orders a folder of images
[[nodiscard]] RecipeCommand adapter_command(
    std::function<Entry()> row);  // millrace adapter: exports the learned weights for other programs

}  // namespace millrace::recipes::image_pairs
