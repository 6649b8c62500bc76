// Makes report.html, a page about one or more runs.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "millrace/runs/run_story.h"

namespace millrace::runs {

// A page about one or more runs. If a file is missing or damaged, the page lacks the part made from it. `reload_s` > 0: the
// page reloads itself after that many seconds.
[[nodiscard]] std::string report_page(std::span<const RunStory> runs, int reload_s = 0);

// Writes RUN/report.html and replaces the old file as a whole. Throws FsError.
std::filesystem::path write_report(const std::filesystem::path& run);

}  // namespace millrace::runs
