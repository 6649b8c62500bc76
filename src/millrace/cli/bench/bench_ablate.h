// `millrace bench ablate`: compares each row of the switchboard off and on, in whole runs of a recipe.
#pragma once

#include <string>

#include "millrace/cli/shared/arguments.h"
#include "millrace/cli/shared/command.h"

namespace millrace::cli {

int bench_ablate(const Invocation& call, Arguments& arguments);

}  // namespace millrace::cli
