// Commands of image_pairs beside those of all recipes.
#pragma once

#include <functional>

#include "millrace/train/recipe/entry.h"

namespace millrace::recipes::image_pairs {

// `row`: this recipe's Entry.
[[nodiscard]] RecipeCommand rank_command(std::function<Entry()> row);  // millrace rank: a folder of images in order
[[nodiscard]] RecipeCommand adapter_command(
    std::function<Entry()> row);  // millrace adapter: what was learned, for other programs

}  // namespace millrace::recipes::image_pairs
