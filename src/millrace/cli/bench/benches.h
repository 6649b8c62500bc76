// The benches of `millrace bench`, one source each. They return the exit code.
#pragma once

#include <string>

#include "millrace/cli/shared/arguments.h"
#include "millrace/cli/shared/command.h"

namespace millrace::cli {

// `millrace bench RECIPE`: measures the promises of a guide: everything off, its pieces of advice added one by one, everything
// on.
int bench_recipe(const Invocation& call, Arguments& arguments);

// `millrace bench ablate`: compares each row of the switchboard off and on, in whole runs of a recipe.
int bench_ablate(const Invocation& call, Arguments& arguments);

// `millrace bench scaling`: the same run on several numbers of ranks of this machine.
int bench_scaling(const Invocation& call, Arguments& arguments);

// `millrace bench loader`: a loader without a model.
[[nodiscard]] int bench_loader(const Invocation& call, Arguments& arguments);
[[nodiscard]] std::string bench_loader_help();  // kinds and keys of a workload

}  // namespace millrace::cli
