// This machine as findings are made of it.
#pragma once

#include "millrace/cli/machine/machine_findings.h"

namespace millrace::cli {

// Looks at CPU, GPU, limits, the current and the cache folder, and for a moment at other programs. `disks`: also measures what
// they write and read a second, about half a second each.
[[nodiscard]] MachineView look_at_machine(bool disks);

}  // namespace millrace::cli
