// The forms of `millrace doctor`, each in its own source file. They return the exit code.
#pragma once

#include <cstdint>
#include <filesystem>

#include "millrace/cli/shared/arguments.h"
#include "millrace/cli/shared/command.h"

namespace millrace::cli {

enum class DoctorOutput : std::uint8_t { text, json };

// `millrace doctor RUN`: prints the faults of the run in this folder. The run may be running, finished or dead. Returns 0; with
// `strict`, returns 3 if the run died or there is a finding.
[[nodiscard]] int doctor_run(const std::filesystem::path& folder, DoctorOutput output, bool strict);

// `millrace doctor --self`: prints how accurate the doctor's predictions have been on this machine, from the ledger.
int doctor_self(bool json);

// `millrace doctor RECIPE --verify`: prints each check when it is done. `arguments`: the words of the command that are not taken
// yet.
int doctor_verify(const Invocation& call, Arguments arguments, bool json);

}  // namespace millrace::cli
