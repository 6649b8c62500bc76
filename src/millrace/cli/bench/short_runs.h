// Short runs of a recipe with some keys changed, each in a process of its own, for the search of `millrace tune`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/doctor/tuner.h"

namespace millrace::cli {

struct ShortRuns {
  std::vector<std::string> words;  // of each run: recipe, files, keys
  std::filesystem::path folder;    // of the runs, which are made anew there each time
  std::int64_t steps = 20;
  std::int64_t rows = 0;     // data.batch_size at which `steps` was chosen: larger batches take fewer; 0 = not known
  bool with_trials = false;  // the doctor's own steps in it, as many as it wants
};

// Never throws over a run that fails: ShortRun::failure.
[[nodiscard]] doctor::ShortRun make_run(const ShortRuns& runs, const doctor::Settings& changed);
// So many steps that the loop of a run takes about this long. UsageError when the run fails.
[[nodiscard]] std::int64_t steps_for(ShortRuns runs, double seconds);

}  // namespace millrace::cli
