// The pictures of one or more runs, by step.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "millrace/runs/run_story.h"

namespace millrace::runs {

// Returns a figure for each picture and run; pictures with the same name are side by side. A figure has as many steps as fit
// into `most` bytes of the page: first the newest, then evenly spaced steps. "" if there are no pictures. `names` has an entry
// for each run.
[[nodiscard]] std::string pictures_html(std::span<const RunStory> runs, std::span<const std::string> names, std::size_t most);

}  // namespace millrace::runs
