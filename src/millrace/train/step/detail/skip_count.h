// Counts on the device the steps of a run that were skipped, and decides when half precision should be given up.
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

  void use_rule_of(std::optional<at::ScalarType> format);  // starts this format's rule afresh; nullopt: no rule applies
  // Called after a step. `bad`: scalar f32, 1 = it was not finite; `smallest_scale`: the losses' smallest, undefined without
  // scales.
  void add(const at::Tensor& bad, const at::Tensor& smallest_scale);
  [[nodiscard]] const at::Tensor& in_all() const noexcept { return in_all_; }      // f64 scalar
  [[nodiscard]] const at::Tensor& in_a_row() const noexcept { return in_a_row_; }  // f64 scalar
  void forgive() { in_a_row_.zero_(); }  // earlier skips in a row do not predict later ones
  // A line that says why half precision should be given up now; nullopt if it should be kept, or in fp32. Waits for the device.
  [[nodiscard]] std::optional<std::string> overflow() const;

  [[nodiscard]] State state() const;    // the live tensors
  void load_state(const State& state);  // takes the entries that exist; SnapshotError for another shape

 private:
  at::Device device_;
  at::Tensor in_all_, in_a_row_;
  std::optional<precision::OverflowRule> rule_;
};

}  // namespace millrace
