// The curves of runs, read from their logs.
#pragma once

#include <span>
#include <vector>

#include "millrace/report/curve.h"
#include "millrace/runs/run_story.h"
#include "millrace/runs/validations.h"

namespace millrace::runs {

struct CurvesOfRuns {
  // Curves in this order: the metric that judges the run, losses with validation losses, other metrics, learning rates, norms,
  // rates, times, memory.
  std::vector<report::Curve> shown;
  std::vector<report::Curve> quiet;  // curves of metrics that the console does not show
};

// Returns the curves of all runs. Several runs share a diagram, and so do the metrics of a group, such as the recall of each
// class. If a run was resumed, the steps that it repeated count once. `validations` and `names` have an entry for each run.
[[nodiscard]] CurvesOfRuns curves_of(std::span<const RunStory> runs, std::span<const Validations> validations,
                                     std::span<const std::string> names);

}  // namespace millrace::runs
