// Finds the earlier runs next to a run's folder that did the same work on the same machine, to compare step times.
#pragma once

#include <filesystem>
#include <string>

#include "millrace/base/json.h"
#include "millrace/doctor/evidence.h"

namespace millrace::runs {

// Everything about a run and its machine that decides how long a step takes. It is equal for runs that differ only in name,
// length and seed.
struct Likeness {
  std::string recipe;
  Json config;       // {section: {key: value}}
  std::string data;  // fingerprint of the data
  Json machine;      // all that distinguishes the machine from others
  [[nodiscard]] std::string digest() const;
};

// Returns the earlier runs that can be compared with `run`, from the newest 64 folders in the parent of `run`. Such a run has
// the value `likeness` in its summary.json, and ended normally after at least twenty steps. Other programs used less than a
// tenth of the cores while it trained. Unreadable files are skipped.
[[nodiscard]] doctor::Evidence::Earlier earlier_runs(const std::filesystem::path& run, const std::string& likeness) noexcept;

}  // namespace millrace::runs
