// The model that predict and eval start from.
#pragma once

#include <string>

#include "millrace/cli/arguments.h"
#include "millrace/train/run.h"
#include "millrace/train/switchboard.h"

namespace millrace::cli {

// Takes --from and all config flags. A run or snapshot folder brings its own config, over which flags go; a safetensors file
// needs one (--preset, --config, flags).
[[nodiscard]] Loaded load_trained(const Entry& entry, Arguments& arguments, const std::string& command,
                                  telemetry::Console& console);

}  // namespace millrace::cli
