// What a run would hold, found by trying: `millrace estimate` and `millrace max-batch`.
#pragma once

#include <cstdint>
#include <functional>

#include "millrace/base/json.h"
#include "millrace/train/run/run.h"

namespace millrace {

// One step tried twice, with everything kept and with every block recomputed: {recipe, batch_size, micro_batches,
// parameters_bytes, buffers_bytes, gradients_bytes, optimizer_bytes, available_bytes, account (MemoryAccount: what a run would
// take in all), lighter: [{setting, bytes}], see smaller_steps()} and MemoryChoice::trial. Writes no run folder.
[[nodiscard]] Json estimate_memory(RunRequest request);

struct MaxBatchOptions {
  std::int64_t from = 1;                                // the first size tried
  std::int64_t most = 0;                                // 0 = the training set
  std::int64_t least_batches = 1;                       // of an epoch: no size that leaves less is tried
  std::function<void(const Json& one)> tell = nullptr;  // each of `tried`, when it is known
};

// The largest batch size that ran a step with its update, a batch of validation and a second step: doubling until one fails, then
// halving the gap down to a sixteenth. {recipe, batch_size (0 = not even `from`), bound ("memory", "data", "config", "most",
// "batches"), limit_bytes, tried: [{batch_size, fits, step_ms, samples_per_s, peak_bytes, limit_bytes, on a CPU without
// memory.limit also resident_before_bytes, resident_bytes} or {batch_size, fits, reason}]}. Writes no run folder.
[[nodiscard]] Json find_max_batch(RunRequest request, const MaxBatchOptions& options);

// The search itself, over a function that runs such a step: it returns {fits, samples_per_epoch, whole_epoch, peak_bytes, ...} or
// throws, for want of memory or otherwise. The resident_bytes of the largest size that ran say what a larger one would take: a
// size that would take more than limit_bytes is not tried.
[[nodiscard]] Json search_max_batch(const MaxBatchOptions& options,
                                    const std::function<Json(std::int64_t batch_size)>& whole_step);

}  // namespace millrace
