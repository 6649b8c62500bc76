// `millrace doctor --self`.
#pragma once

namespace millrace::cli {

// How far the doctor's predictions came true on this machine, by the ledger. Returns the exit status.
int doctor_self(bool json);

}  // namespace millrace::cli
