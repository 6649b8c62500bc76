// The recipe that a command names among its words.
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

// Takes the recipe's name out of the words: the first word, or the first that names a recipe. UsageError when there is none or
// it is unknown, with the nearest.
const Entry& take_recipe(Arguments& arguments, std::span<const Entry> recipes, std::string_view command);

[[nodiscard]] std::vector<std::string> names_of(std::span<const Entry> recipes);

}  // namespace millrace::cli
