// LMOL's log line and its table.
#pragma once

#include "millrace/train/recipe/recipe.h"

namespace millrace::recipes::image_pairs {

// training_log.csv with LMOL's columns, the step first, and its line
//   Batch 120 | Epoch 0.171 | Loss: 1.02e+00 (CE: 9.8e-01, Cons: 2.1e-03) | Acc: 0.52 (F .5 S .5 Sim .6) | LR: Proj = …
// base_ce is the cross-entropy without weights, ce_ratio that of pairs as they stand over that of exchanged ones; both need
// log.train_metrics. Cells of unmeasured values are empty; ema_ce_ratio always is: a running mean would restart on resume.
// `groups`: the groups of learning parameters, in the objective's order.
struct LogGroups {
  std::size_t projector = 0, lora = 0;
};
[[nodiscard]] StepLog original_log(LogGroups groups);

}  // namespace millrace::recipes::image_pairs
