// `millrace bench scaling`: the same run on several numbers of ranks of this machine.
#pragma once

#include "millrace/cli/shared/arguments.h"
#include "millrace/cli/shared/command.h"

namespace millrace::cli {

int bench_scaling(const Invocation& call, Arguments& arguments);

}  // namespace millrace::cli
