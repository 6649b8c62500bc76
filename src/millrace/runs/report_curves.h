// The curves of one run or several, from the lines of their logs.
#pragma once

#include <span>
#include <vector>

#include "millrace/report/curve.h"
#include "millrace/runs/run_story.h"

namespace millrace::runs {

// Losses with those of the validation, other metrics, learning rates, norms, rates, times, memory: in this order. Several runs
// stand in one diagram, named by their folders. A run that went on counts what its last process logged of a step.
[[nodiscard]] std::vector<report::Curve> curves_of(std::span<const RunStory> runs);

}  // namespace millrace::runs
