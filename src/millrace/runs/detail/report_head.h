// What a report says first: how each run ended, its figures, and how runs differ.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "millrace/runs/run_story.h"
#include "millrace/runs/validations.h"

namespace millrace::runs {

// A short name for each run that no other of them has.
[[nodiscard]] std::vector<std::string> names_of(std::span<const RunStory> runs);
// `names`: of each run; `validations`: likewise. Of a single run tiles, of several a table.
[[nodiscard]] std::string head_html(std::span<const RunStory> runs, std::span<const Validations> validations,
                                    std::span<const std::string> names);

}  // namespace millrace::runs
