// `millrace doctor RUN`.
#pragma once

#include <filesystem>

namespace millrace::cli {

enum class DoctorOutput : std::uint8_t { text, json };

// Prints the faults of the run in this folder, whether it is running, finished or dead. Returns exit code 0; with `strict` 3 if
// the run died or there is a finding.
[[nodiscard]] int doctor_run(const std::filesystem::path& folder, DoctorOutput output, bool strict);

}  // namespace millrace::cli
