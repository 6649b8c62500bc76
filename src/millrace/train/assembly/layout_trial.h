// Decides by a trial between the two memory layouts, contiguous and channels-last.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "millrace/precision/precision.h"
#include "millrace/train/step/step_trials.h"

namespace millrace {

using LayoutRounds = std::array<precision::Trial, 3>;  // the first step of each layout also sets things up

struct LayoutVerdict {
  bool channels_last = false;
  std::string reason;
  bool by_time = false;    // both layouts give right values, and time decided
  bool disturbed = false;  // other programs used the cores
};

// Compares the same step in both layouts; the gradients of channels_last[i] are compared with the contiguous ones before them. A
// layout with a value that is not finite loses; values that differ rule out channels-last, as in precision::confirm(); else the
// time decides.
[[nodiscard]] LayoutVerdict judge_layouts(const LayoutRounds& contiguous, const LayoutRounds& channels_last);
// Makes the trial steps with this batch and judges them. They leave no trace except the recipe's layout: the caller sets the
// chosen one.
[[nodiscard]] LayoutVerdict try_layouts(Recipe& recipe, Stepper& stepper, const Batch& batch, TrialTime* time = nullptr);

// Of two trials of the same step, one in each layout, the one that represents its number format: the faster one of those with
// finite values; `contiguous` if neither is finite.
[[nodiscard]] const precision::Trial& better_of(const precision::Trial& contiguous, const precision::Trial& channels_last);
// A trial step in `format`; with `tries_layouts` in both layouts, so that a format is judged in the layout that a run would use
// with it. Afterwards the recipe is contiguous with `tries_layouts`, else in its former layout.
[[nodiscard]] precision::Trial try_format(Recipe& recipe, StepTrials& trials, const Batch& batch,
                                          std::optional<at::ScalarType> format, bool tries_layouts);

}  // namespace millrace
