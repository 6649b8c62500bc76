// What a trial of both memory layouts decides.
#pragma once

#include <array>
#include <string>

#include "millrace/precision/precision.h"
#include "millrace/train/stepper.h"

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

}  // namespace millrace
