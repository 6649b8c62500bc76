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
  std::vector<metrics::Confusion> tables;  // confusion tables of the recipe's classifications
  std::int64_t batches = 0;                // batches of this rank
  std::int64_t rows = 0;                   // rows of all ranks
};
// Makes one pass of `loader` in evaluation mode and returns the means of the losses ("val_<objective>") and of the recipe's own
// metrics. The model stays in evaluation mode. `limit`: the most batches to use, 0 = all. A batch that data.bad_samples=skip left
// empty is not counted. Collective. nullopt if a stop signal came first on any rank.
[[nodiscard]] std::optional<Validated> run_validation(const BatchContext& context, Stepper& stepper, data::Loader& loader,
                                                      std::int64_t limit, Agreement& agreement = Agreement::of_one());

}  // namespace millrace
