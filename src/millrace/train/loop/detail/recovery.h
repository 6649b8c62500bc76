// Recovers a run from out-of-memory: it recomputes everything it can, then uses smaller micro-batches. The global batch stays.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "millrace/core/agreement.h"
#include "millrace/train/recipe/config.h"
#include "millrace/train/report/reporter.h"
#include "millrace/train/step/stepper.h"

namespace millrace {

// Used by the loop's thread. All ranks make the same calls; attempt() is collective: if memory runs out on one rank, all ranks
// try again, and all cut their batches alike.
class Recovery {
 public:
  // `recovers`: false leaves errors to the caller. `may_recompute`: blocks that the config does not name may be recomputed too.
  // `micro_batches`: the initial number.
  Recovery(bool recovers, bool may_recompute, std::int64_t micro_batches, Recipe& recipe, Stepper& stepper, Reporter& reporter,
           Agreement& agreement);

  // The number of parts that a batch is cut into; it only grows.
  [[nodiscard]] std::int64_t micro_batches() const noexcept { return micro_batches_; }
  void use_at_least(std::int64_t micro_batches) noexcept;
  void saw(const Batch& batch) noexcept;  // called before a batch is used

  struct Attempt {
    std::int64_t step = 0;       // the step in the log
    std::string where;           // "step 12"
    bool may_recompute = false;  // false for forward passes alone, which keep nothing
    bool alone = false;          // true: this rank alone makes the attempt, so nothing is collective
  };
  // Retries `run` after out-of-memory: before each further try it calls `undo` and lowers memory use. Returns the result of `run`
  // (a count of rows), added up over the ranks: one exchange for both. Rethrows errors of `run` that are not about memory;
  // DeviceError if no smaller try is left.
  std::int64_t attempt(const Attempt& tried, const std::function<std::int64_t()>& run, const std::function<void()>& undo);

  // Records the most tensor bytes held in steps alone, from the allocator's counters; does not wait for the device.
  void record_peak();
  void forget_peak();
  [[nodiscard]] std::uint64_t step_peak_bytes() const noexcept { return step_peak_bytes_; }
  [[nodiscard]] std::uint64_t take_epoch_peak();  // most bytes since the last call
  [[nodiscard]] Json results() const;

 private:
  [[nodiscard]] Agreement& with(const Attempt& tried) const { return tried.alone ? Agreement::of_one() : agreement_; }
  void need_less(const Attempt& tried, const std::string& reason);
  void warn(const Attempt& tried, const std::string& text, Json values) const;
  void warn_of_smaller_steps(const Attempt& tried) const;
  [[nodiscard]] Message no_room(const Attempt& tried, const std::string& reason) const;

  bool recovers_, may_recompute_;
  std::int64_t micro_batches_;
  Recipe& recipe_;
  Stepper& stepper_;
  Reporter& reporter_;
  Agreement& agreement_;
  std::int64_t widest_group_ = 1;       // rows of a batch's largest group, so far
  std::uint64_t step_peak_bytes_ = 0;   // most bytes of tensors, in steps alone
  std::uint64_t epoch_peak_bytes_ = 0;  // most bytes of tensors in steps of the epoch under way
};

}  // namespace millrace
