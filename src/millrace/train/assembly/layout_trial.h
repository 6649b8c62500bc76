// Decides by a trial between two memory layouts of images or volumes: contiguous and channels-last.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "millrace/precision/precision.h"
#include "millrace/train/step/step_trials.h"

namespace millrace {

using LayoutRounds = std::array<precision::Trial, 3>;  // three steps in one layout; the first one also warms caches up

struct LayoutVerdict {
  bool channels_last = false;
  std::string reason;
  bool by_time = false;    // true: both layouts give right values, so the time decided
  bool disturbed = false;  // true: other programs used the cores during the trial
};

// Compares the same step in both layouts. The gradients in channels_last[i] were compared with those of contiguous[i]. A layout
// that gives a value that is not finite loses. If values differ by too much (see precision::confirm()), contiguous wins.
// Otherwise the shorter time wins.
[[nodiscard]] LayoutVerdict judge_layouts(const LayoutRounds& contiguous, const LayoutRounds& channels_last);
// Makes the trial steps with this batch and judges them. The steps leave no trace except the recipe's layout, which the caller
// must set to the chosen one.
[[nodiscard]] LayoutVerdict try_layouts(Recipe& recipe, Stepper& stepper, const Batch& batch, TrialTime* time = nullptr);

// Compares two trials of the same step, one in each layout, and returns the one that is used to judge their number format. This
// is the faster of those with finite values; `contiguous` if neither is finite.
[[nodiscard]] const precision::Trial& better_of(const precision::Trial& contiguous, const precision::Trial& channels_last);
// Makes a trial step in `format`. With `tries_layouts` the step is made in both layouts, so that a format is judged in the
// layout that a run would use. Afterwards the recipe is in contiguous layout. Without `tries_layouts` the recipe's layout does
// not change.
[[nodiscard]] precision::Trial try_format(Recipe& recipe, StepTrials& trials, const Batch& batch,
                                          std::optional<at::ScalarType> format, bool tries_layouts);

}  // namespace millrace
