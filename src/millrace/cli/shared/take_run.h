// Prepares a run as `train` does, for commands that only examine it.
#pragma once

#include "millrace/cli/shared/arguments.h"
#include "millrace/train/run/run.h"

namespace millrace::cli {

// The run that `train` would start with these words, but without a run folder. Takes the config flags and files. `entry` and
// `console` must outlive the result.
[[nodiscard]] RunRequest take_run(const Entry& entry, Arguments& arguments, telemetry::Console& console);

}  // namespace millrace::cli
