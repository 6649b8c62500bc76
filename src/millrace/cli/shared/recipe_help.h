// What `millrace train RECIPE --help` says of a recipe: presets, every key, the other names that are accepted.
#pragma once

#include <string>

#include "millrace/cli/shared/command.h"

namespace millrace::cli {

// Of the recipe named in the call's words; a hint when none is named.
[[nodiscard]] std::string recipe_help(const Invocation& call);

}  // namespace millrace::cli
