// Pictures of a validation: where units look, what they respond to, and how well their rates are predicted.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/picture/picture.h"

namespace millrace::recipes::neural_response {

// The data of a session's validation that the pictures need: sums over the session's rows, and the session's first bins in the
// order of time.
struct Seen {
  static constexpr std::int64_t kUnits = 6;    // the first kUnits units of a session are shown one by one
  static constexpr std::int64_t kTrace = 120;  // number of bins in a trace
  static constexpr std::int64_t kLevels = 20;  // number of levels of predicted rates
  static constexpr std::int64_t kAsked = 16;   // number of rows over which gradients are averaged

  at::Tensor sums;                      // (4, units), see metrics::information_sums
  at::Tensor by_counts;                 // (shown units, L, H, W): for each unit the sum of the stimuli times the unit's counts
  at::Tensor stimuli;                   // (L, H, W): the sum of the stimuli
  at::Tensor totals;                    // (2, shown units): numbers of bins and of spikes
  at::Tensor some_stim, some_behavior;  // the inputs of the first rows, at most kAsked
  at::Tensor counts, rates;             // (at most kTrace, shown units)
  at::Tensor levels;  // (3, kLevels): for each level of the predicted rate, the number of bins and the sums of rates and counts,
                      // over all units

  [[nodiscard]] bool empty() const { return !sums.defined(); }
  // Adds rows. y (counts), r (rates in a bin) and mask are (N, units) fp32; stim is (N, 1, L, H, W) float; behavior is (N, B) or
  // undefined. Copies no value to the host.
  void add(const at::Tensor& y, const at::Tensor& r, const at::Tensor& mask, const at::Tensor& stim, const at::Tensor& behavior);
};

// The session that a picture shows.
struct Shown {
  std::string session;
  std::vector<std::int64_t> cids;
  double bins_per_s = 120;
};

// Draws where the units look, on the core's last frame. masks: (units, H, W); the values of each unit sum to 1.
[[nodiscard]] Picture draw_masks(const at::Tensor& masks, const Shown& shown);
// Draws counts and predicted rates of consecutive bins.
[[nodiscard]] Picture draw_traces(const Seen& seen, const Shown& shown);
// Draws, for the three units with most spikes, the mean stimulus before a spike and the gradient of the model's output with
// respect to the stimulus, each at the lag with the strongest response. gradients: (shown units, L, H, W).
[[nodiscard]] Picture draw_fields(const Seen& seen, const at::Tensor& gradients, const Shown& shown);
// Draws the mean count for each predicted rate, over all units of all sessions.
[[nodiscard]] Picture draw_calibration(const std::vector<Seen>& sessions, double bins_per_s);
// Draws the bits per spike of the units of each session.
[[nodiscard]] Picture draw_bits(const std::vector<std::vector<double>>& bits, const std::vector<std::string>& sessions);

}  // namespace millrace::recipes::neural_response
