// The model that predict and eval start from.
#pragma once

#include <string>

#include "millrace/cli/shared/arguments.h"
#include "millrace/train/recipe/switchboard.h"
#include "millrace/train/run/run.h"

namespace millrace::cli {

// Takes --from (or --run-dir RUN --model-type best|last, words of another trainer's) and all config flags. A run or snapshot
// folder brings its own config, over which flags go; a safetensors file needs one (--preset, --config, flags). A flag for a key
// that the command does not use is a ConfigError.
[[nodiscard]] Loaded load_trained(const Entry& entry, Arguments& arguments, const std::string& command,
                                  telemetry::Console& console);

// Takes the recipe's name out of the words, as take_recipe() does; where they name none it is that of the run that --from names,
// or of the file of weights that export wrote, or the program's only one.
const Entry& take_recipe_of_run(Arguments& arguments, std::span<const Entry> recipes, const std::string& command);

// The line about the model: which snapshot, and the number format where it is not fp32.
[[nodiscard]] std::string told(const Loaded& loaded);

}  // namespace millrace::cli
