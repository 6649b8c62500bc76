// `millrace doctor RUN`.
#pragma once

#include <filesystem>

namespace millrace::cli {

enum class DoctorOutput : std::uint8_t { text, json };

// What is wrong with the run in this folder: going on, finished or dead. Exit code 0; with `strict` 3 when it died or there is a
// finding.
[[nodiscard]] int doctor_run(const std::filesystem::path& folder, DoctorOutput output, bool strict);

}  // namespace millrace::cli
