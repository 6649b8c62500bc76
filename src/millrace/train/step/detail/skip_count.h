// Counts on the device the skipped steps of a run, and decides when half precision should be given up.
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

  // Starts this format's rule from the beginning; nullopt: no rule applies.
  void use_rule_of(std::optional<at::ScalarType> format);
  // Call after a step. `bad`: f32 scalar, 1 = the step was not finite; `smallest_scale`: the smallest loss scale, undefined if
  // there are no scales.
  void add(const at::Tensor& bad, const at::Tensor& smallest_scale);
  [[nodiscard]] const at::Tensor& in_all() const noexcept { return in_all_; }      // skipped steps; f64 scalar
  [[nodiscard]] const at::Tensor& in_a_row() const noexcept { return in_a_row_; }  // latest skipped steps in a row; f64 scalar
  void forgive() { in_a_row_.zero_(); }  // called when earlier skips in a row do not predict later ones
  // A line that says why half precision should be given up now; nullopt if it should be kept or the run uses fp32. Waits for the
  // device.
  [[nodiscard]] std::optional<std::string> overflow() const;

  [[nodiscard]] State state() const;    // refers to the live tensors
  void load_state(const State& state);  // takes the entries that exist; SnapshotError if one has another shape

 private:
  at::Device device_;
  at::Tensor in_all_, in_a_row_;
  std::optional<precision::OverflowRule> rule_;
};

}  // namespace millrace
