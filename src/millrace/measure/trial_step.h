// Steps of a run that is not kept: what measurements make.
#pragma once

#include <cstdint>

#include "millrace/base/error.h"
#include "millrace/train/assembly/assembly.h"

namespace millrace {

struct TrialStep {
  double seconds = 0;
  std::int64_t rows = 0;
  double loss = 0;  // of the first objective, its last micro-batch
};

// Step `step` (0-based) with its update, on the loader's next batch; the epoch after the last batch begins by itself.
// DataError where there is no batch.
TrialStep make_trial_step(Assembly& run, std::int64_t step);

[[nodiscard]] DataError no_trial_batch();

}  // namespace millrace
