// Step times of earlier runs in the same folder that did the same work on the same machine.
#pragma once

#include <filesystem>
#include <string>

#include "millrace/base/json.h"
#include "millrace/doctor/evidence.h"

namespace millrace::runs {

// The work of a run and its machine, as far as they decide the time of a step: equal for runs that differ in name, length and
// seed.
struct Likeness {
  std::string recipe;
  Json config;       // {section: {key: value}}
  std::string data;  // a fingerprint
  Json machine;      // anything that distinguishes it from others
  [[nodiscard]] std::string digest() const;
};

// The runs, among the newest 64 folders in the parent of `run`, whose summary.json has this digest as "likeness". They ended
// normally after at least twenty steps, while other programs had less than a tenth of the cores. Unreadable files are skipped.
[[nodiscard]] doctor::Evidence::Earlier earlier_runs(const std::filesystem::path& run, const std::string& likeness) noexcept;

}  // namespace millrace::runs
