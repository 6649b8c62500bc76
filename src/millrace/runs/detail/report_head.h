// The head of a report: how each run ended, its figures, and how the runs differ.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "millrace/runs/run_story.h"
#include "millrace/runs/validations.h"

namespace millrace::runs {

// A short, unique name for each run.
[[nodiscard]] std::vector<std::string> names_of(std::span<const RunStory> runs);
// Shows tiles for a single run, and a table for several runs. `names` and `validations` have an entry for each run.
[[nodiscard]] std::string head_html(std::span<const RunStory> runs, std::span<const Validations> validations,
                                    std::span<const std::string> names);

}  // namespace millrace::runs
