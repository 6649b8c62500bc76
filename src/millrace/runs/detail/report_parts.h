// The sections of a report about a single run, other than its curves and pictures.
#pragma once

#include <map>
#include <string>

#include "millrace/runs/run_story.h"

namespace millrace::runs {

// HTML before and after the pictures.
struct ReportParts {
  std::string before, after;
};

[[nodiscard]] ReportParts parts_of(const RunStory& run);
// The values of a run's config by dotted key; empty if it can't be read.
[[nodiscard]] std::map<std::string, std::string> config_values(const RunStory& run);

}  // namespace millrace::runs
