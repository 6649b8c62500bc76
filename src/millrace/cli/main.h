// The command line. Users with recipes of their own write: int main(int c, char** v) { return millrace::cli_main(c, v, recipes);
// }
#pragma once

#include <span>

#include "millrace/train/entry.h"

namespace millrace {

// Runs the command in argv with these recipes and returns the exit code:
// 0 done, 1 failed, 2 usage or config, 128 + n after signal n. Never throws.
int cli_main(int argc, char** argv, std::span<const Entry> recipes);

}  // namespace millrace
