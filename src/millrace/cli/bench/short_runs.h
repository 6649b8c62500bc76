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
  std::vector<std::string> words;  // the words of each command line: recipe, files, keys
  std::filesystem::path folder;    // the run folder, which each run overwrites
  std::int64_t steps = 20;
  std::int64_t rows = 0;     // the data.batch_size for which `steps` was chosen (a run with larger batches needs fewer steps); 0
                             // = unknown
  bool with_trials = false;  // true: the run also makes all of the doctor's trials that it can
};

// Makes a run and returns its measurements. Does not throw if the run fails: ShortRun::failure then says why.
[[nodiscard]] doctor::ShortRun make_run(const ShortRuns& runs, const doctor::Settings& changed);
// The number of steps that the loop of a run makes in about `seconds`. Throws UsageError if the run fails.
[[nodiscard]] std::int64_t steps_for(const ShortRuns& runs, double seconds);

}  // namespace millrace::cli
