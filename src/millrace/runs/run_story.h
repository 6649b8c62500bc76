// What the files of a run tell of it: whether it goes on or what it died of, where its time went, what the doctor found. Of any
// folder, whatever stands in its files.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/doctor/cause.h"
#include "millrace/runs/run.h"
#include "millrace/train/report/block_times.h"

namespace millrace::runs {

struct RunStory {
  std::filesystem::path folder;
  std::string recipe, preset;
  doctor::Cause state;                                   // of the last process
  std::optional<std::int64_t> saved_step;                // of the newest snapshot
  std::vector<doctor::Cause> earlier;                    // of those before, oldest first
  std::vector<std::pair<std::string, double>> accounts;  // seconds of the last process, largest first; empty: an older run
  // The same of each rank, by rank, where the last process ended by itself; empty: there was one, or it is not known.
  std::vector<std::vector<std::pair<std::string, double>>> ranks;
  std::vector<BlockTime> blocks;             // of the last process, in the order of the model; empty: not known
  Json findings;                             // an array; null: nobody looked
  Json summary;                              // summary.json where the last process wrote it; else null
  std::vector<std::vector<Json>> processes;  // lines of log.jsonl
};

[[nodiscard]] RunStory story_of(const Run& run);
// UsageError when the folder is none, or no run's.
[[nodiscard]] RunStory read_story(const std::filesystem::path& folder);

// "backward 50 %, forward 32 %": of what is at least one in two hundred.
[[nodiscard]] std::string shares_text(const std::vector<std::pair<std::string, double>>& accounts);

}  // namespace millrace::runs
