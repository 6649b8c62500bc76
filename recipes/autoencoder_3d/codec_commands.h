// `millrace encode` and `millrace decode`: pass files through a trained autoencoder.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "millrace/train/recipe/entry.h"

namespace millrace::recipes::autoencoder_3d {

// The commands for Entry::commands. `row` returns the recipe's entry. Both commands return the exit code.
[[nodiscard]] RecipeCommand encode_command(std::function<Entry()> row);
[[nodiscard]] RecipeCommand decode_command(std::function<Entry()> row);

}  // namespace millrace::recipes::autoencoder_3d
