// The curves of one or more runs, from the lines of their logs.
#pragma once

#include <span>
#include <vector>

#include "millrace/report/curve.h"
#include "millrace/runs/run_story.h"

namespace millrace::runs {

// The curves in this order: losses with validation losses, other metrics, learning rates, norms, rates, times, memory. Several
// runs share a diagram, labelled by their folders. If a run was resumed, the last process that logged a step counts.
[[nodiscard]] std::vector<report::Curve> curves_of(std::span<const RunStory> runs);

}  // namespace millrace::runs
