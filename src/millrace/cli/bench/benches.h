// The commands of `millrace bench`, each in its own source file. They return the exit code.
#pragma once

#include <string>

#include "millrace/cli/shared/arguments.h"
#include "millrace/cli/shared/command.h"

namespace millrace::cli {

// `millrace bench RECIPE`: measures what a guide promises. It runs the recipe with everything off, then adds the guide's pieces
// of advice one by one, and last turns everything on.
int bench_recipe(const Invocation& call, Arguments& arguments);

// `millrace bench ablate`: compares whole runs of a recipe with each row of the switchboard off and on.
int bench_ablate(const Invocation& call, Arguments& arguments);

// `millrace bench scaling`: makes the same run with different numbers of ranks on this machine.
int bench_scaling(const Invocation& call, Arguments& arguments);

// `millrace bench loader`: measures a loader without a model.
[[nodiscard]] int bench_loader(const Invocation& call, Arguments& arguments);
[[nodiscard]] std::string bench_loader_help();  // the kinds and keys of a workload

}  // namespace millrace::cli
