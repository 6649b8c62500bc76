// The recipe's row of the recipe registry.
#pragma once

#include "millrace/train/recipe/entry.h"

namespace millrace::recipes::language_model {

[[nodiscard]] Entry entry();

// `millrace generate`: generates text with a trained model. Returns the exit code.
int generate_command(std::span<const std::string> words);

}  // namespace millrace::recipes::language_model
