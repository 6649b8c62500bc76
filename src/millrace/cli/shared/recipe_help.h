// The recipe's part of `millrace train RECIPE --help`: presets, all keys, and other accepted names of keys.
#pragma once

#include <string>

#include "millrace/cli/shared/command.h"

namespace millrace::cli {

// The help of the recipe that the call's words name; if they name no recipe, the list of all recipes.
[[nodiscard]] std::string recipe_help(const Invocation& call);

}  // namespace millrace::cli
