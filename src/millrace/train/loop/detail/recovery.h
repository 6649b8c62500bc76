// Recovers a run from out-of-memory: first it recomputes every block, then it uses smaller micro-batches. The global batch does
// not change.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "millrace/core/agreement.h"
#include "millrace/train/recipe/config.h"
#include "millrace/train/report/reporter.h"
#include "millrace/train/step/stepper.h"

namespace millrace {

// Used by the loop's thread. All ranks make the same calls. attempt() is collective: if memory runs out on one rank, all ranks
// try again and cut their batches alike.
class Recovery {
 public:
  // `recovers`: false leaves out-of-memory errors to the caller. `may_recompute`: true allows recovery to recompute blocks that
  // the config does not name. `micro_batches`: the number of micro-batches per batch at the start.
  Recovery(bool recovers, bool may_recompute, std::int64_t micro_batches, Recipe& recipe, Stepper& stepper, Reporter& reporter,
           Agreement& agreement);

  // The number of micro-batches into which a batch is cut; it never decreases.
  [[nodiscard]] std::int64_t micro_batches() const noexcept { return micro_batches_; }
  void use_at_least(std::int64_t micro_batches) noexcept;
  void saw(const Batch& batch) noexcept;  // called with each batch before its use

  struct Attempt {
    std::int64_t step = 0;       // the step that the log names
    std::string where;           // the place that messages name: "step 12"
    bool may_recompute = false;  // false for forward passes without backward, because they keep nothing to recompute
    bool alone = false;          // true: only this rank makes the attempt, so nothing is collective
    std::int64_t rows = 0;       // if saw() is not called with the batches of this attempt: the most rows that a batch has
  };
  // Calls `run`, and calls it again after each out-of-memory; before each further try it calls `undo` and reduces the use of
  // memory. `run` returns a number of rows; attempt() returns their sum over all ranks, which is exchanged in the same message
  // as the failures. Errors of `run` that are not about memory are rethrown. Throws DeviceError if the use of memory can't be
  // reduced further.
  std::int64_t attempt(const Attempt& tried, const std::function<std::int64_t()>& run, const std::function<void()>& undo);

  // Records the most bytes of tensors since the last forget_peak(), from the allocator's counters. Does not wait for the device.
  // The loop calls it before work that is not a step, so that the record covers only steps.
  void record_peak();
  void forget_peak();
  [[nodiscard]] std::uint64_t step_peak_bytes() const noexcept { return step_peak_bytes_; }
  [[nodiscard]] std::uint64_t take_epoch_peak();  // the most bytes of tensors during steps since the last call
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
  std::int64_t widest_group_ = 1;       // the most rows that a group of any batch has had so far
  std::uint64_t step_peak_bytes_ = 0;   // the most bytes of tensors during steps
  std::uint64_t epoch_peak_bytes_ = 0;  // the most bytes of tensors during the steps of the current epoch
};

}  // namespace millrace
