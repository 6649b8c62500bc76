// Collects the facts about this machine from which the findings are made.
#pragma once

#include "millrace/cli/machine/machine_findings.h"

namespace millrace::cli {

// Looks at CPU, GPU, limits, the current folder and the cache folder, and watches other programs for a quarter of a second.
// `disks`: also measures how fast disks write and read, which takes about half a second for each.
[[nodiscard]] MachineView look_at_machine(bool disks);

}  // namespace millrace::cli
