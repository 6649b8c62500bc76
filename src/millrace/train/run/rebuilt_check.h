// Checks that a later process can continue from a run's snapshot: that the snapshot holds all the state of its recipe.
#pragma once

#include <string>

#include "millrace/snapshot/snapshot.h"
#include "millrace/train/assembly/assembly.h"

namespace millrace {

struct RebuiltCheck {
  std::string warning;    // "" = no fault was found
  std::string unchecked;  // the reason why nothing was compared; "" = the losses were compared
};

// Makes a second recipe as `millrace eval` would, with the weights and the recipe's state in `content`, which is the run's
// present state. Then computes the loss of one validation batch (of a training batch if there is no validation) with both recipes
// in evaluation mode. No fault is found if the losses agree: to the bit on a CPU, to 1e-3 of their value on a GPU. Otherwise the
// warning has both numbers, or the error of the second recipe. Nothing is compared if memory is short, or if a batch has no row
// or has other values when it is prepared again. Nothing is compared either if opening the data again would take too long: if
// `opening_seconds`, the time that it took when the run began, is more than a second and more than a hundredth of the run's time
// so far. Leaves no trace in the run. For a run of one process.
[[nodiscard]] RebuiltCheck check_rebuilt(Assembly& assembly, const snapshot::Content& content, double opening_seconds);

}  // namespace millrace
