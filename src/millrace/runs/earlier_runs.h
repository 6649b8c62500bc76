// Runs beside this one that did the same work on the same machine: how long their steps took.
#pragma once

#include <filesystem>
#include <string>

#include "millrace/base/json.h"
#include "millrace/doctor/evidence.h"

namespace millrace::runs {

// What a run does and where, as far as it decides how long a step takes: equal for runs of other names, lengths and seeds.
struct Likeness {
  std::string recipe;
  Json config;       // {section: {key: value}}
  std::string data;  // a fingerprint
  Json machine;      // anything that tells it from others
  [[nodiscard]] std::string digest() const;
};

// Of the newest 64 folders in the parent of `run`: runs whose summary.json has this digest as "likeness", that ended by
// themselves after twenty steps or more, and beside which no other programs had a tenth of the cores. Whatever can't be read is
// passed over.
[[nodiscard]] doctor::Earlier earlier_runs(const std::filesystem::path& run, const std::string& likeness) noexcept;

}  // namespace millrace::runs
