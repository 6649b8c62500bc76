// For commands that set a run up as `train` does and look at it instead.
#pragma once

#include "millrace/cli/shared/arguments.h"
#include "millrace/train/run/run.h"

namespace millrace::cli {

// A run as `train` would start it, without a run folder; `entry` and `console` outlive it. Takes the config flags and files.
[[nodiscard]] RunRequest take_run(const Entry& entry, Arguments& arguments, telemetry::Console& console);

}  // namespace millrace::cli
