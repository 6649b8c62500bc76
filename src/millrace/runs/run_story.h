// The story of a run, read from its files: whether it is running or why it ended, how its time was spent, and what the doctor
// found. The files may contain anything.
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
  bool is_script = false;                  // true: the run of a script that is not Millrace's; `recipe` is its file name
  doctor::Cause state;                     // state of the last process: whether it is running, or why it ended
  std::optional<std::int64_t> saved_step;  // step of the newest snapshot
  std::vector<doctor::Cause> earlier;      // how the earlier processes ended, the oldest first
  // Accounts of the last process's time, in seconds, the largest first; empty: a run of an older version.
  std::vector<std::pair<std::string, double>> accounts;
  // `accounts` of each rank, if the last process ended normally; empty: there is only one rank, or the accounts are unknown.
  std::vector<std::vector<std::pair<std::string, double>>> ranks;
  std::vector<BlockTime> blocks;             // the last process's time in each block, in the model's order; empty: unknown
  Json findings;                             // an array; null: the doctor was off
  Json summary;                              // the content of summary.json if the last process wrote it, else null
  std::vector<std::vector<Json>> processes;  // the lines of log.jsonl, for each process
};

[[nodiscard]] RunStory story_of(const Run& run);
// Reads the story of a run. Throws UsageError if `folder` is not a run folder.
[[nodiscard]] RunStory read_story(const std::filesystem::path& folder);

// The accounts as a text: "backward 50 %, forward 32 %". Accounts below half a per cent are left out.
[[nodiscard]] std::string shares_text(const std::vector<std::pair<std::string, double>>& accounts);

}  // namespace millrace::runs
