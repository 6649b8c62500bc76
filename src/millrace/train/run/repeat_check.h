// What must come out the same when it is done again: a batch that is read, a validation that is measured. A resumed run, an eval
// and the next validation do it again.
#pragma once

#include <optional>
#include <string>

#include "millrace/metrics/board.h"
#include "millrace/train/assembly/assembly.h"

namespace millrace {

// Reads and prepares the first micro-batch of a split a second time and compares it with `first`, to the bit. "" if they are the
// same; else a line that names field and sample, and whose random numbers these are: the source's or prepare()'s. On a GPU, whose
// sums may differ, values are compared to 1e-3.
[[nodiscard]] std::string check_batch_repeats(const Assembly& assembly, Split split, const Batch& first);

// Measures a validation batch again, as the next validation would, and compares all sums and counts with those of `first`, a
// validation of this batch alone. "" if they are the same; else a line with the metric and both values. The recipe's own
// validation state is left as after begin_validation().
[[nodiscard]] std::string check_metrics_repeat(Recipe& recipe, const Batch& batch, const StepResult& result,
                                               const metrics::Board& first);

// A line if the output "logits" holds probabilities: each row is between 0 and 1 and sums to 1. "" else.
[[nodiscard]] std::string probabilities_in(const StepResult& result);

}  // namespace millrace
