// A pass over the validation split.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "millrace/core/agreement.h"
#include "millrace/data/loader/loader.h"
#include "millrace/metrics/confusion.h"
#include "millrace/metrics/means.h"
#include "millrace/train/step/micro_batches.h"
#include "millrace/train/step/stepper.h"

namespace millrace {

struct Validated {
  metrics::Means means;
  std::vector<metrics::Confusion> tables;  // of the recipe's classifications
  std::int64_t batches = 0;                // of this rank
  std::int64_t rows = 0;                   // of all ranks
};
// Losses ("val_<objective>") and the recipe's own metrics over one pass of `loader` in evaluation mode, which the model is left
// in. `limit`: the most batches that are used, 0 = all. A batch of which data.bad_samples=skip left nothing counts for nothing.
// nullopt when a stop signal came first, on any rank; collective.
[[nodiscard]] std::optional<Validated> run_validation(const BatchWay& way, Stepper& stepper, data::Loader& loader,
                                                      std::int64_t limit, Agreement& agreement = Agreement::of_one());

}  // namespace millrace
