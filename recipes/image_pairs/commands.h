// The commands that only image_pairs has.
#pragma once

#include <functional>

#include "millrace/train/recipe/entry.h"

namespace millrace::recipes::image_pairs {

// `row`: returns this recipe's entry.
[[nodiscard]] RecipeCommand rank_command(std::function<Entry()> row);  // millrace rank: orders a folder of images
[[nodiscard]] RecipeCommand adapter_command(
    std::function<Entry()> row);  // millrace adapter: exports the learned weights for other programs

}  // namespace millrace::recipes::image_pairs
