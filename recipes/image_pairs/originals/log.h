// The log of LMOL (the program that this recipe follows, see README.md): its line on the console and its table.
#pragma once

#include "millrace/train/recipe/recipe.h"

namespace millrace::recipes::image_pairs {

// Indices of the parameter groups in the objective's list.
struct LogGroups {
  std::size_t projector = 0, lora = 0;
};
// Writes LMOL's table, training_log.csv with the step and then LMOL's columns, and LMOL's line:
//   Batch 120 | Epoch 0.171 | Loss: 1.02e+00 (CE: 9.8e-01, Cons: 2.1e-03) | Acc: 0.52 (F .5 S .5 Sim .6) | LR: Proj = …
// base_ce is the cross-entropy without weights. ce_ratio is the cross-entropy of pairs in the given order divided by that in the
// exchanged order. Both need log.train_metrics. Cells of values that were not measured are empty. The cell of ema_ce_ratio is
// always empty, because a running mean would restart when a run resumes.
[[nodiscard]] StepLog original_log(LogGroups groups);

}  // namespace millrace::recipes::image_pairs
