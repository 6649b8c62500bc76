// Makes report.html, a page about one or more runs.
#pragma once

#include <span>
#include <string>

#include "millrace/runs/run_story.h"

namespace millrace::runs {

// The page as HTML. If a file of a run is missing or damaged, the part about it is left out.
[[nodiscard]] std::string report_page(std::span<const RunStory> runs);

// Writes RUN/report.html and replaces the old file as a whole. Throws FsError.
std::filesystem::path write_report(const std::filesystem::path& run);

}  // namespace millrace::runs
