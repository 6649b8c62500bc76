// One batch of each split goes through a recipe before the first step: a mistake that a whole epoch would find is found in
// seconds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/metrics/means.h"
#include "millrace/train/assembly/assembly.h"

namespace millrace {

struct Rehearsal {
  std::int64_t training_rows = 0, validation_rows = 0;  // 0 = there was no batch
  metrics::Means losses;                                // of the training batch: each objective's, and each term's
  metrics::Means metrics;                               // of the validation batch
  std::vector<std::string> pictures;                    // "name 640x480"
  std::string prediction;                               // what predict() took and gave, or why it was left out
  std::vector<std::string> warnings;                    // a line each; the run may go on
  double seconds = 0;
};

// Data, prepare, losses, gradients, measure, draw, predict: once each, after the choices of `assembly` are made. Changes no
// random number, statistic, gradient or state; a recipe's own validation state is begun anew. Want of memory ends the rehearsal
// of a split early, since a run recovers from it.
//   RecipeError   what leaves a callback (see RecipeGuard); a loss that counts nothing; a history column without a metric
//   ConfigError   snapshot.best_metric names no metric of the validation, or there is no validation to judge by
// predict() gets two rows of the batch, where the batch has fields of the names, types and shapes that the recipe's entry says it
// takes.
[[nodiscard]] Rehearsal rehearse(Assembly& assembly);

// For `train --rehearse`: what went through and what came out, a line for each.
[[nodiscard]] std::string to_text(const Rehearsal& rehearsal);

}  // namespace millrace
