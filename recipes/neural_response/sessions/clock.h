// Looks at a recording's own clock: how far apart its bins are, and where it goes back or jumps.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace millrace::recipes::neural_response {

struct ClockSeen {
  // Seconds between two bins of a trial. Below 0 if the clock runs backwards. 0 if the clock stands still or is coarser than the
  // step.
  double step_seconds = 0;
  double doubt = 0;  // relative error of the step, which follows from the digits of the clock's numbers
  // Bins whose step from the bin before, in the same trial, is off by more than half a step (the clock goes back or jumps) or is
  // not a number.
  std::vector<std::int64_t> seams;
  std::string worst;  // the worst seam, in words: "go back by 3 s at bin 720, in trial 5, where a step usually takes …"
  double first = 0, last = 0;  // seconds at the first and at the last bin
};

// `seconds` and `trials` have a value for each bin. If all numbers fit into float32, they are assumed to be rounded to float32.
// Late in a session, this rounding makes the steps differ.
[[nodiscard]] ClockSeen look_at_clock(std::span<const double> seconds, std::span<const std::int64_t> trials);

}  // namespace millrace::recipes::neural_response
