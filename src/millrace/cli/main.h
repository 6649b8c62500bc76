// The command line. A user's program with its own recipes needs one line:
//   int main(int argc, char** argv) { return millrace::cli_main(argc, argv, recipes); }
#pragma once

#include <span>

#include "millrace/train/recipe/entry.h"

namespace millrace {

// Runs the command in argv with these recipes. Returns the exit code: 0 = done, 1 = failed, 2 = wrong usage or config, 128 + n =
// ended by signal n. Never throws; errors are printed on stderr.
int cli_main(int argc, char** argv, std::span<const Entry> recipes);

}  // namespace millrace
