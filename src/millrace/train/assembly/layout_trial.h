// What a trial of both memory layouts decides.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "millrace/precision/precision.h"
#include "millrace/train/step/step_trials.h"

namespace millrace {

using LayoutRounds = std::array<precision::Trial, 3>;  // the first step of each layout sets things up

struct LayoutVerdict {
  bool channels_last = false;
  std::string reason;
  bool by_time = false;    // both layouts are right
  bool disturbed = false;  // by other programs
};

// The same step in both layouts, the gradients channels-last compared with those before it contiguous. What is not finite loses;
// values that differ are out, as in precision::confirm(); else the time decides.
[[nodiscard]] LayoutVerdict judge_layouts(const LayoutRounds& contiguous, const LayoutRounds& channels_last);
// The same of trial steps of this batch, which leave no trace but the recipe's layout: the caller sets it to the one it takes.
[[nodiscard]] LayoutVerdict try_layouts(Recipe& recipe, Stepper& stepper, const Batch& batch);

// Of the same step in both layouts the one to judge a number format by: the faster; a step that is not finite where both are not.
[[nodiscard]] const precision::Trial& better_of(const precision::Trial& contiguous, const precision::Trial& channels_last);
// A trial step in `format`, in both layouts where `tries_layouts`: a format is judged in the layout that a run would take with
// it. The recipe is contiguous then; else it keeps its layout.
[[nodiscard]] precision::Trial try_format(Recipe& recipe, StepTrials& trials, const Batch& batch,
                                          std::optional<at::ScalarType> format, bool tries_layouts);

}  // namespace millrace
