// `millrace bench RECIPE`: what a guide promises, measured: everything off, its advice put on one after the other, everything on.
#pragma once

#include "millrace/cli/shared/arguments.h"
#include "millrace/cli/shared/command.h"

namespace millrace::cli {

int bench_recipe(const Invocation& call, Arguments& arguments);

}  // namespace millrace::cli
