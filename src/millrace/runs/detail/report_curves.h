// The curves of runs, read from their logs.
#pragma once

#include <span>
#include <vector>

#include "millrace/report/curve.h"
#include "millrace/runs/run_story.h"

namespace millrace::runs {

// The curves, in this order: losses with validation losses, other metrics, learning rates, norms, rates, times, memory. Several
// runs share a diagram and are labelled by their folders. If several processes of a run logged the same step, the last process
// counts.
[[nodiscard]] std::vector<report::Curve> curves_of(std::span<const RunStory> runs);

}  // namespace millrace::runs
