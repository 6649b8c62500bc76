// Sends one batch of each split through a recipe before the first step, so that a mistake which would otherwise show after a
// whole epoch shows in seconds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/metrics/means.h"
#include "millrace/train/assembly/assembly.h"

namespace millrace {

struct Rehearsal {
  std::int64_t training_rows = 0, validation_rows = 0;  // 0 = the split has no batch
  metrics::Means losses;                                // means of each objective and each term on the training batch
  metrics::Means metrics;                               // means on the validation batch
  std::vector<std::string> pictures;                    // "name 640x480"
  std::string prediction;                               // inputs and outputs of predict(), or the reason why it was not called
  std::vector<std::string> unchecked;                   // losses for which it was not checked that they add up, with the reason
  std::vector<std::string> warnings;                    // one line for each warning; a warning does not stop the run
  double seconds = 0;
  double step_seconds = 0;   // seconds for the forward and the backward pass of the training batch
  double check_seconds = 0;  // seconds for work that a step does not do: batches read again, losses and metrics computed again
};

// Runs data, prepare, losses, gradients, measure, draw and predict once each, after `assembly` has made its choices. Checks the
// losses of the validation batch (without a validation: of the training batch, in evaluation mode) by two more forward passes,
// unless these would take longer than two steps and longer than two seconds.
// Reads and prepares the training batch and the validation batch again if that takes less than 0.5 s, and measures the validation
// batch again (repeat_check.h).
// Changes no random number, statistic, gradient or state; a recipe's own validation state is reset. Out-of-memory ends the
// rehearsal of a split early, since a run recovers from it. Throws
//   RecipeError   if a callback throws (see RecipeGuard), if the count of a loss is 0, if a loss does not add up (loss_check.h)
//                 or depends on layers that the model does not hold (stray_leaves.h), or if a history column has no metric
//   ConfigError   if snapshot.best_metric names no metric of the validation, if snapshot.best_is contradicts what is known of
//                 that metric, or if there is no validation to judge by
// predict() gets two rows of the batch, if the batch has fields of the names, types and shapes in the recipe's entry.
[[nodiscard]] Rehearsal rehearse(Assembly& assembly);

// Throws ConfigError if the run has no validation and snapshot.best_metric or early stopping needs one. For a run without a
// rehearsal, such as one that is resumed with another value of these keys.
void require_judge(const Assembly& assembly);

// For `train --rehearse`: a line for each callback, with its inputs and results.
[[nodiscard]] std::string to_text(const Rehearsal& rehearsal);

}  // namespace millrace
