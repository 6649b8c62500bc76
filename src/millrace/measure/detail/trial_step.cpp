#include "millrace/measure/detail/trial_step.h"

#include "millrace/base/clock.h"
#include "millrace/system/process.h"
#include "millrace/train/step/micro_batches.h"

namespace millrace {

DataError no_trial_batch() {
  return DataError(
      {"there is no batch to try a step with", "the training data", "give more samples, or set data.drop_last=false"});
}

TrialStep make_trial_step(Assembly& run, std::int64_t step) {
  const double begin = steady_seconds();
  TrialStep made;
  run.stepper().begin_step(step);
  const std::int64_t accumulate = run.config().optim.accumulate;
  for (std::int64_t i = 0; i < accumulate; ++i) {
    auto host = run.loaders().training().next();
    if (!host) host = run.loaders().training().next();  // the first batch of the next epoch
    if (!host) break;
    made.rows += for_each_micro_batch(run.batch_context(), std::move(*host), [&](const Batch& batch, MicroPosition in_batch) {
      const StepResult result = run.stepper().accumulate(batch, {.only = in_batch.only && accumulate == 1});
      made.loss = shown(result.losses[0]).item<double>();  // waits for the device
    });
  }
  if (made.rows == 0) throw no_trial_batch();
  run.stepper().update();
  made.seconds = steady_seconds() - begin;
  return made;
}

}  // namespace millrace
