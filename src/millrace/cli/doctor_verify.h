// `millrace doctor RECIPE --verify`.
#pragma once

#include "millrace/cli/shared/arguments.h"
#include "millrace/cli/shared/command.h"

namespace millrace::cli {

// `arguments`: the command's words without those that were taken. Prints each check when it is known; returns the exit code.
int doctor_verify(const Invocation& call, Arguments arguments, bool json);

}  // namespace millrace::cli
