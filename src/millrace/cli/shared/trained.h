// Loads the model for predict and eval.
#pragma once

#include <string>

#include "millrace/cli/shared/arguments.h"
#include "millrace/train/recipe/switchboard.h"
#include "millrace/train/run/run.h"

namespace millrace::cli {

// Takes --from (or --run-dir RUN --model-type best|last, the words of another trainer) and all config flags. A run or snapshot
// folder has its own config, which flags override; a safetensors file needs one (--preset, --config, flags). ConfigError for a
// flag whose key the command does not use.
[[nodiscard]] Loaded load_trained(const Entry& entry, Arguments& arguments, const std::string& command,
                                  telemetry::Console& console);

// Takes the recipe's name from the words, like take_recipe(); without a name it is the recipe of the run in --from, or of the
// file of weights that export wrote, or the program's only recipe.
const Entry& take_recipe_of_run(Arguments& arguments, std::span<const Entry> recipes, const std::string& command);

// The line about the model: its snapshot, and the number format unless it is fp32.
[[nodiscard]] std::string description(const Loaded& loaded);

}  // namespace millrace::cli
