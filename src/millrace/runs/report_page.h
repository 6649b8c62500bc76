// report.html: what a run, or several, tell of themselves on one page.
#pragma once

#include <span>
#include <string>

#include "millrace/runs/run_story.h"

namespace millrace::runs {

// At least one. Files that are missing or damaged leave their part out.
[[nodiscard]] std::string report_page(std::span<const RunStory> runs);

// RUN/report.html, replaced as a whole. FsError.
std::filesystem::path write_report(const std::filesystem::path& run);

}  // namespace millrace::runs
