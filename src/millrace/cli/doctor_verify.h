// `millrace doctor RECIPE --verify`.
#pragma once

#include "millrace/cli/shared/arguments.h"
#include "millrace/cli/shared/command.h"

namespace millrace::cli {

// `arguments`: the words of the command that were not yet taken. Prints each check when it completes; returns the exit code.
int doctor_verify(const Invocation& call, Arguments arguments, bool json);

}  // namespace millrace::cli
