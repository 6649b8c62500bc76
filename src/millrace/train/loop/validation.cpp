#include "millrace/train/loop/validation.h"

#include <torch/nn/module.h>

#include "millrace/metrics/board.h"
#include "millrace/system/signals.h"
#include "millrace/train/step/feed.h"

namespace millrace {

std::optional<Validated> run_validation(const BatchContext& context, Stepper& stepper, data::Loader& loader, std::int64_t limit,
                                        Agreement& agreement) {
  const at::NoGradGuard no_grad;
  metrics::Board board;
  context.recipe.model().eval();
  context.recipe.begin_validation();
  loader.restart(0);
  std::int64_t batches = 0, rows = 0;
  Feed feed(loader, Split::validation, context.device, context.ahead);
  for (; limit == 0 || batches < limit; ++batches) {
    if (agreement.any(pending_signal() != 0)) return std::nullopt;
    std::optional<Batch> whole = feed.next();
    if (!whole) break;
    rows += for_each_micro_batch(
        {context.recipe, nullptr, context.device, context.micro_batches, Split::validation, context.ahead, context.seed},
        std::move(*whole), [&](const Batch& batch, MicroPosition) {
          const StepResult result = stepper.evaluate(batch);
          for (std::size_t k = 0; k < result.losses.size(); ++k) board.add("val_" + stepper.objective_name(k), result.losses[k]);
          context.recipe.measure(batch, result, board);
        });
    whole.reset();
    if (limit == 0 || batches + 1 < limit) feed.look_ahead();
  }
  if (agreement.any(pending_signal() != 0)) return std::nullopt;
  context.recipe.end_validation(board);
  board.sum_over(agreement);
  return Validated{board.means(), board.tables(), batches, agreement.sum(rows)};
}

}  // namespace millrace
