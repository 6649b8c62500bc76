// Collects the input of findings on this machine.
#pragma once

#include "millrace/cli/machine/machine_findings.h"

namespace millrace::cli {

// Checks CPU, GPU, limits, the current folder and the cache folder, and watches other programs for a moment. `disks`: also
// measures the write and read rates of disks, about half a second each.
[[nodiscard]] MachineView look_at_machine(bool disks);

}  // namespace millrace::cli
