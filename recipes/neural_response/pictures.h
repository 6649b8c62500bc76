// Pictures of a validation: where units look, what they respond to, and how well their rates are predicted.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/picture/picture.h"

namespace millrace::recipes::neural_response {

// The data kept of a session's validation: sums over its rows, and its first bins in sequence.
struct Seen {
  static constexpr std::int64_t kUnits = 6;    // shown individually: the session's first
  static constexpr std::int64_t kTrace = 120;  // bins of a trace
  static constexpr std::int64_t kLevels = 20;  // levels of predicted rates
  static constexpr std::int64_t kAsked = 16;   // rows over which gradients are averaged

  at::Tensor sums;                      // (4, units), see metrics::information_sums
  at::Tensor by_counts;                 // (shown units, L, H, W): sums of stimuli times the unit's counts
  at::Tensor stimuli;                   // (L, H, W): sum of the stimuli
  at::Tensor totals;                    // (2, shown units): bins and counts
  at::Tensor some_stim, some_behavior;  // inputs of the first rows, (at most kAsked, ...)
  at::Tensor counts, rates;             // (at most kTrace, shown units)
  at::Tensor levels;                    // (3, kLevels): bins, rates and counts of all units, by the predicted rate

  [[nodiscard]] bool empty() const { return !sums.defined(); }
  // counts, rates (per bin), mask: (N, units) fp32; stim (N, 1, L, H, W) float; behavior (N, B) or undefined. No read-back.
  void add(const at::Tensor& y, const at::Tensor& r, const at::Tensor& mask, const at::Tensor& stim, const at::Tensor& behavior);
};

// The session of a picture.
struct Shown {
  std::string session;
  std::vector<std::int64_t> cids;
  double bins_per_s = 120;
};

// Positions of the units on the core's last frame: masks (units, H, W), each of sum 1.
[[nodiscard]] Picture draw_masks(const at::Tensor& masks, const Shown& shown);
// Counts and predicted rates of consecutive bins.
[[nodiscard]] Picture draw_traces(const Seen& seen, const Shown& shown);
// For the three units with most spikes, each at the lag where it is strongest: the spike-triggered average of the stimulus, and
// the gradient of the model's output with respect to the stimulus, (shown units, L, H, W).
[[nodiscard]] Picture draw_fields(const Seen& seen, const at::Tensor& gradients, const Shown& shown);
// Mean count against predicted rate, over all units of all sessions.
[[nodiscard]] Picture draw_calibration(const std::vector<Seen>& sessions, double bins_per_s);
// Bits per spike of the units of each session.
[[nodiscard]] Picture draw_bits(const std::vector<std::vector<double>>& bits, const std::vector<std::string>& sessions);

}  // namespace millrace::recipes::neural_response
