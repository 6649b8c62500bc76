// Finds out by trying how much memory a run would take: for `millrace estimate` and `millrace max-batch`.
#pragma once

#include <cstdint>
#include <functional>

#include "millrace/base/json.h"
#include "millrace/train/run/run.h"

namespace millrace {

// Tries a step twice: without recompute, and with every block recomputed. Returns {recipe, batch_size, micro_batches,
// parameters_bytes, buffers_bytes, gradients_bytes, optimizer_bytes, available_bytes, account, lighter: [{setting, bytes}]} and
// MemoryChoice::trial. `account` is the MemoryAccount of a run; for `lighter` see smaller_steps(). Writes no run folder.
[[nodiscard]] Json estimate_memory(RunRequest request);

struct MaxBatchOptions {
  std::int64_t from = 1;                                  // the first size that is tried
  std::int64_t most = 0;                                  // the largest size to try; 0 = the size of the training set
  std::int64_t least_batches = 1;                         // an epoch must have at least this many batches; larger sizes are not
                                                          // tried
  std::function<void(const Json& one)> report = nullptr;  // called with each entry of `tried` as soon as it is known
};

// Finds the largest batch size with which a run can make a step with its update, a validation batch and a second step. Doubles
// the size until it fails, then halves the gap until it is a sixteenth of the size. Returns {recipe, batch_size, bound,
// limit_bytes, tried}. batch_size is 0 if not even `from` fits. bound is "memory", "data", "config", "most" or "batches". tried
// is a list of {batch_size, fits, step_ms, samples_per_s, peak_bytes, limit_bytes, on a CPU without memory.limit also
// resident_before_bytes, resident_bytes} or {batch_size, fits, reason}. Writes no run folder.
[[nodiscard]] Json find_max_batch(RunRequest request, const MaxBatchOptions& options);

// The search itself. `whole_step` makes the steps of find_max_batch() with a given batch size. `whole_step` returns {fits,
// samples_per_epoch, whole_epoch, peak_bytes, ...}, or throws if memory ran out or on any other error. From resident_bytes of
// the largest size that fitted, the search extrapolates the need of a larger size. A size that would exceed limit_bytes is not
// tried.
[[nodiscard]] Json search_max_batch(const MaxBatchOptions& options,
                                    const std::function<Json(std::int64_t batch_size)>& whole_step);

}  // namespace millrace
