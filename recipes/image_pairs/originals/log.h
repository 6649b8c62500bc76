// LMOL's log line and its table.
#pragma once

#include "millrace/train/recipe/recipe.h"

namespace millrace::recipes::image_pairs {

// Positions of these parameter groups in the objective's list.
struct LogGroups {
  std::size_t projector = 0, lora = 0;
};
// training_log.csv with the step and then LMOL's columns, and LMOL's line
//   Batch 120 | Epoch 0.171 | Loss: 1.02e+00 (CE: 9.8e-01, Cons: 2.1e-03) | Acc: 0.52 (F .5 S .5 Sim .6) | LR: Proj = …
// base_ce is the cross-entropy without weights; ce_ratio is the cross-entropy of pairs as given, divided by that of exchanged
// pairs. Both need log.train_metrics. Cells of unmeasured values are empty; ema_ce_ratio always is: a running mean would restart
// on resume.
[[nodiscard]] StepLog original_log(LogGroups groups);

}  // namespace millrace::recipes::image_pairs
