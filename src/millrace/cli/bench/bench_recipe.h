// `millrace bench RECIPE`: measures what a guide promises, with everything off, with its pieces of advice added one by one, and
// with everything on.
#pragma once

#include "millrace/cli/shared/arguments.h"
#include "millrace/cli/shared/command.h"

namespace millrace::cli {

int bench_recipe(const Invocation& call, Arguments& arguments);

}  // namespace millrace::cli
