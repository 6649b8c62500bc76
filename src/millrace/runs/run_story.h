// The story of a run from its files: whether it runs or why it ended, where its time went, the doctor's findings. Accepts any
// folder and any content.
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
  doctor::Cause state;                     // state of the last process
  std::optional<std::int64_t> saved_step;  // step of the newest snapshot
  std::vector<doctor::Cause> earlier;      // how earlier processes ended, oldest first
  // Seconds of the last process, largest first; empty: a run of an older version.
  std::vector<std::pair<std::string, double>> accounts;
  // The same for each rank, if the last process ended normally; empty: one rank, or unknown.
  std::vector<std::vector<std::pair<std::string, double>>> ranks;
  std::vector<BlockTime> blocks;             // times of the last process, in the order of the model; empty: unknown
  Json findings;                             // an array; null: not checked
  Json summary;                              // summary.json if the last process wrote it; else null
  std::vector<std::vector<Json>> processes;  // lines of log.jsonl
};

[[nodiscard]] RunStory story_of(const Run& run);
// UsageError if `folder` is not a run folder.
[[nodiscard]] RunStory read_story(const std::filesystem::path& folder);

// "backward 50 %, forward 32 %": accounts of at least one in two hundred.
[[nodiscard]] std::string shares_text(const std::vector<std::pair<std::string, double>>& accounts);

}  // namespace millrace::runs
