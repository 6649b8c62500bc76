// Counts a run's skipped steps on the device, and decides when the run should give up half precision.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "millrace/core/batch.h"
#include "millrace/precision/overflow_rule.h"

namespace millrace {

// Used by the loop's thread.
class SkipCount {
 public:
  explicit SkipCount(at::Device device);

  // Starts afresh with the overflow rule of this number format (precision/overflow_rule.h); nullopt: no rule applies.
  void use_rule_of(std::optional<at::ScalarType> format);
  // Call after a step. `bad`: f32 scalar, 1 = the step was not finite; `smallest_scale`: the smallest loss scale, undefined if
  // there are no scales.
  void add(const at::Tensor& bad, const at::Tensor& smallest_scale);
  [[nodiscard]] const at::Tensor& in_all() const noexcept { return in_all_; }      // skipped steps; f64 scalar
  [[nodiscard]] const at::Tensor& in_a_row() const noexcept { return in_a_row_; }  // latest skipped steps in a row; f64 scalar
  void forgive() { in_a_row_.zero_(); }  // call when earlier skips in a row say nothing about later skips
  // A line that says why half precision should be given up now; nullopt if it should be kept or the run uses fp32. Waits for the
  // device.
  [[nodiscard]] std::optional<std::string> overflow() const;

  [[nodiscard]] State state() const;    // the tensors themselves, not copies
  void load_state(const State& state);  // Takes the entries that exist. Throws SnapshotError if an entry has another shape than
                                        // here.

 private:
  at::Device device_;
  at::Tensor in_all_, in_a_row_;
  std::optional<precision::OverflowRule> rule_;
};

}  // namespace millrace
