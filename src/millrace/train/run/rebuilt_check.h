// Checks that a later process can continue from a run's snapshot: that the snapshot holds all the state of its recipe.
#pragma once

#include <string>

#include "millrace/snapshot/snapshot.h"
#include "millrace/train/assembly/assembly.h"

namespace millrace {

// Makes a second recipe as `millrace eval` would, with the weights and the recipe's state in `content`, which is the run's
// present state. Then computes the loss of one validation batch (of a training batch if there is no validation) with both recipes
// in evaluation mode. Returns "" if the losses agree to the bit, on a GPU to 1e-3 of their value; else a warning with both
// numbers, or with the error of the second recipe. Also returns "" without a check if memory is short, or if opening the data
// again would take too long: `opening_seconds`, the time it took when the run began, is more than a second and more than a
// hundredth of the run's time so far. Leaves no trace in the run. For a run of one process.
[[nodiscard]] std::string check_rebuilt(Assembly& assembly, const snapshot::Content& content, double opening_seconds);

}  // namespace millrace
