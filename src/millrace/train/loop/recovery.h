// What a run does when memory runs out: everything it can recompute, then smaller micro-batches. The global batch stays.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "millrace/core/agreement.h"
#include "millrace/train/recipe/config.h"
#include "millrace/train/report/reporter.h"
#include "millrace/train/step/stepper.h"

namespace millrace {

// Used by the loop's thread. All ranks make the same calls; attempt() is collective: when memory runs out on one rank, all try
// again, and all cut their batches alike.
class Recovery {
 public:
  // `recovers`: else an error is the caller's. `may_recompute`: also what the config does not name. `micro_batches`: to begin
  // with.
  Recovery(bool recovers, bool may_recompute, std::int64_t micro_batches, Recipe& recipe, Stepper& stepper, Reporter& reporter,
           Agreement& agreement);

  [[nodiscard]] std::int64_t micro_batches() const noexcept { return micro_batches_; }  // that a batch is cut into; only grows
  void use_at_least(std::int64_t micro_batches) noexcept;
  void saw(const Batch& batch) noexcept;  // a batch that is about to be used

  struct Attempt {
    std::int64_t step = 0;       // for the log
    std::string where;           // "step 12"
    bool may_recompute = false;  // forward passes alone keep nothing
    bool alone = false;          // this rank's business only: nothing is collective then
  };
  // Calls `run` until it goes through; before each further try `undo`, and then less is held in memory. What `run` throws is
  // thrown on when it is not for want of memory, and a DeviceError when no smaller try is left. Returns what `run` returned (a
  // count of rows), added up over the ranks: one exchange for both.
  std::int64_t attempt(const Attempt& tried, const std::function<std::int64_t()>& run, const std::function<void()>& undo);

  // The most tensors held in steps alone, by the allocator's own counters: nothing waits.
  void record_peak();
  void forget_peak();
  [[nodiscard]] std::uint64_t step_peak_bytes() const noexcept { return step_peak_bytes_; }
  [[nodiscard]] std::uint64_t take_epoch_peak();  // since the last call
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
  std::uint64_t step_peak_bytes_ = 0;   // of tensors, in steps alone
  std::uint64_t epoch_peak_bytes_ = 0;  // the same of the epoch under way
};

}  // namespace millrace
