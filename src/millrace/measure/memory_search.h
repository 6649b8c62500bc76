// Memory that a run would take, found by trying: `millrace estimate` and `millrace max-batch`.
#pragma once

#include <cstdint>
#include <functional>

#include "millrace/base/json.h"
#include "millrace/train/run/run.h"

namespace millrace {

// Tries one step twice, without recomputation and with every block recomputed. Returns {recipe, batch_size, micro_batches,
// parameters_bytes, buffers_bytes, gradients_bytes, optimizer_bytes, available_bytes, account (MemoryAccount: a run's total),
// lighter: [{setting, bytes}], see smaller_steps()} and MemoryChoice::trial. Writes no run folder.
[[nodiscard]] Json estimate_memory(RunRequest request);

struct MaxBatchOptions {
  std::int64_t from = 1;                                  // the first size tried
  std::int64_t most = 0;                                  // 0 = the training set
  std::int64_t least_batches = 1;                         // per epoch: a size that gives fewer is not tried
  std::function<void(const Json& one)> report = nullptr;  // called with each entry of `tried` when it is known
};

// Finds the largest batch size that runs a step with its update, a batch of validation and a second step: doubles until a size
// fails, then halves the gap down to a sixteenth. Returns {recipe, batch_size (0 = not even `from`), bound ("memory", "data",
// "config", "most", "batches"), limit_bytes, tried: [{batch_size, fits, step_ms, samples_per_s, peak_bytes, limit_bytes, on a CPU
// without memory.limit also resident_before_bytes, resident_bytes} or {batch_size, fits, reason}]}. Writes no run folder.
[[nodiscard]] Json find_max_batch(RunRequest request, const MaxBatchOptions& options);

// The search itself, over a function that runs such steps: it returns {fits, samples_per_epoch, whole_epoch, peak_bytes, ...} or
// throws, when out of memory or on any other error. The need of a larger size is extrapolated from resident_bytes of the largest
// that ran; a size that would exceed limit_bytes is not tried.
[[nodiscard]] Json search_max_batch(const MaxBatchOptions& options,
                                    const std::function<Json(std::int64_t batch_size)>& whole_step);

}  // namespace millrace
