// `millrace bench loader`, called by the command `bench`.
#pragma once

#include <string>

#include "millrace/cli/shared/arguments.h"
#include "millrace/cli/shared/command.h"

namespace millrace::cli {

[[nodiscard]] int bench_loader(const Invocation& call, Arguments& arguments);
[[nodiscard]] std::string bench_loader_help();  // kinds and keys of a workload

}  // namespace millrace::cli
