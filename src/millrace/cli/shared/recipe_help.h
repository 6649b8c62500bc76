// The recipe's part of `millrace train RECIPE --help`: presets, every key, the other names that are accepted.
#pragma once

#include <string>

#include "millrace/cli/shared/command.h"

namespace millrace::cli {

// The help of the recipe named in the call's words; a hint if there is no name.
[[nodiscard]] std::string recipe_help(const Invocation& call);

}  // namespace millrace::cli
