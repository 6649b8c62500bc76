// Makes training steps for measurements, in a run whose results are not kept.
#pragma once

#include <cstdint>

#include "millrace/base/error.h"
#include "millrace/train/assembly/assembly.h"

namespace millrace {

struct TrialStep {
  double seconds = 0;
  std::int64_t rows = 0;
  double loss = 0;  // loss of the first objective in the step's last micro-batch
};

// Makes step `step` (0-based), with its update, on the loader's next batch. After the last batch of an epoch the next epoch
// begins. Throws DataError if there is no batch.
TrialStep make_trial_step(Assembly& run, std::int64_t step);

[[nodiscard]] DataError no_trial_batch();

}  // namespace millrace
