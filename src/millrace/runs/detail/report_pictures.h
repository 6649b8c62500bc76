// The pictures of one or more runs, by step.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "millrace/runs/run_story.h"

namespace millrace::runs {

// A figure for each picture and run, pictures of one name side by side, with as many of its steps as fit into `most` bytes of the
// page: the newest first, then those between, evenly. "" if there are no pictures. `names`: of each run.
[[nodiscard]] std::string pictures_html(std::span<const RunStory> runs, std::span<const std::string> names, std::size_t most);

}  // namespace millrace::runs
