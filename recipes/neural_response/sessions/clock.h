// A recording's own clock: the distance of its bins, and where it goes back or jumps.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace millrace::recipes::neural_response {

struct ClockSeen {
  // Between consecutive bins of a trial; below 0 if the clock runs backwards; 0 if it stands still or is coarser than its steps.
  double step_seconds = 0;
  double doubt = 0;  // relative error of the step, from the digits of the clock's numbers
  // Bins before which, within a trial, the clock goes back, jumps or is not a number: more than half a step from its due value.
  std::vector<std::int64_t> seams;
  std::string worst;           // of the seams, in words: "go back by 3 s at bin 720, in trial 5"
  double first = 0, last = 0;  // seconds, at the first and the last bin
};

// `seconds` and `trials` of each bin, of equal length. Numbers that all fit float32 are assumed to be rounded to it: late in a
// session their steps differ by that alone.
[[nodiscard]] ClockSeen look_at_clock(std::span<const double> seconds, std::span<const std::int64_t> trials);

}  // namespace millrace::recipes::neural_response
