// Loads the model for `predict` and `eval`.
#pragma once

#include <string>

#include "millrace/cli/shared/arguments.h"
#include "millrace/train/recipe/switchboard.h"
#include "millrace/train/run/run.h"

namespace millrace::cli {

// Takes --from and all config flags from the words. Also accepts another trainer's flags instead of --from: --run-dir RUN
// --model-type best|last. A run and a snapshot contain their config; flags replace its values. For a safetensors file the words
// must give a config (--preset, --config, flags). Throws ConfigError for a flag whose key the command does not use.
[[nodiscard]] Loaded load_trained(const Entry& entry, Arguments& arguments, const std::string& command,
                                  telemetry::Console& console);

// Takes the recipe's name from the words, as take_recipe() does. If the words have no name, returns the recipe of the run in
// --from, the recipe of the weights file that `export` wrote, or the program's only recipe.
const Entry& take_recipe_of_run(Arguments& arguments, std::span<const Entry> recipes, const std::string& command);

// A line about the model: its snapshot, and its number format unless that is fp32.
[[nodiscard]] std::string description(const Loaded& loaded);

}  // namespace millrace::cli
