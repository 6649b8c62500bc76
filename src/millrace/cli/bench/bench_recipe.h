// `millrace bench RECIPE`: measures the promises of a guide: everything off, its pieces of advice added one by one, everything
// on.
#pragma once

#include "millrace/cli/shared/arguments.h"
#include "millrace/cli/shared/command.h"

namespace millrace::cli {

int bench_recipe(const Invocation& call, Arguments& arguments);

}  // namespace millrace::cli
