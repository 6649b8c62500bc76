// Whether a run's snapshot is all that a later process needs.
#pragma once

#include <string>

#include "millrace/snapshot/snapshot.h"
#include "millrace/train/assembly/assembly.h"

namespace millrace {

// Makes the recipe again as `millrace eval` would, with the weights and the recipe's state in `content`, the run's present state,
// and computes the loss of one validation batch (without a validation: one training batch) by both, in evaluation mode. "" if the
// losses agree to the bit (on a GPU to 1e-3 of their value), if memory is short, or if opening the data, which took
// `opening_seconds` when the run began, would take more than a second and a hundredth of the run's time so far. Else a warning
// with both numbers, or with what the recipe threw. Leaves no trace in the run. For a run of one process.
[[nodiscard]] std::string check_rebuilt(Assembly& assembly, const snapshot::Content& content, double opening_seconds);

}  // namespace millrace
