// Checks that a batch is the same when it is read again, and that a validation is the same when it is measured again. A resumed
// run, an eval and the next validation rely on both.
#pragma once

#include <optional>
#include <string>

#include "millrace/metrics/board.h"
#include "millrace/train/assembly/assembly.h"

namespace millrace {

// Reads and prepares the first micro-batch of a split a second time and compares it with `first`, to the bit. Returns "" if both
// are the same. Otherwise returns a line with the field, the sample and the cause: random numbers of the source or of prepare().
// On a GPU, values are compared to 1e-3, because a GPU's sums may differ.
[[nodiscard]] std::string check_batch_repeats(const Assembly& assembly, Split split, const Batch& first);

// Measures a validation batch again, as the next validation would, and compares all sums and counts with those of `first`, a
// validation of this batch alone. Returns "" if all are the same, otherwise a line with the name of the metric. The recipe's own
// validation state is left as after begin_validation().
[[nodiscard]] std::string check_metrics_repeat(Recipe& recipe, const Batch& batch, const StepResult& result,
                                               const metrics::Board& first);

// Returns a line if the output "logits" holds probabilities, that is, if the values of each row are between 0 and 1 and sum to
// 1. Otherwise returns "".
[[nodiscard]] std::string probabilities_in(const StepResult& result);

}  // namespace millrace
