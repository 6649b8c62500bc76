// `millrace doctor --self`.
#pragma once

namespace millrace::cli {

// Prints how accurate the doctor's predictions were on this machine, from the ledger. Returns the exit code.
int doctor_self(bool json);

}  // namespace millrace::cli
