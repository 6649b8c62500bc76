// Short runs of a recipe with some keys changed, each in a separate process, for the search of `millrace tune`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/doctor/tuner.h"

namespace millrace::cli {

struct ShortRuns {
  std::vector<std::string> words;  // words of each run: recipe, files, keys
  std::filesystem::path folder;    // folder of the runs, overwritten by each run
  std::int64_t steps = 20;
  std::int64_t rows = 0;     // data.batch_size for which `steps` was chosen: larger batches take fewer steps; 0 = unknown
  bool with_trials = false;  // also runs as many of the doctor's trial steps as it wants
};

// Does a run. A failed run does not throw: see ShortRun::failure.
[[nodiscard]] doctor::ShortRun make_run(const ShortRuns& runs, const doctor::Settings& changed);
// The number of steps for which a run's loop takes about `seconds`. UsageError if the run fails.
[[nodiscard]] std::int64_t steps_for(ShortRuns runs, double seconds);

}  // namespace millrace::cli
