// Finds the name of the recipe among a command's words.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/config/arguments.h"
#include "millrace/train/recipe/entry.h"

namespace millrace::cli {

using config::Arguments;
using config::suggestion;
using config::with_underscores;

// Removes the recipe's name from the words and returns the recipe. The name is the first word that names a recipe, or else the
// first word. Throws UsageError with the nearest name if the name is missing or unknown.
const Entry& take_recipe(Arguments& arguments, std::span<const Entry> recipes, std::string_view command);

[[nodiscard]] std::vector<std::string> names_of(std::span<const Entry> recipes);

}  // namespace millrace::cli
