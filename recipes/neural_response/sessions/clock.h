// What a recording's own clock says of its bins: how far apart they are, and where it goes back or jumps.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace millrace::recipes::neural_response {

struct ClockSeen {
  // Between bins that follow each other within a trial; 0 where the clock says nothing: it stands still, or is coarser than its
  // steps; below 0 where it runs backwards.
  double step_seconds = 0;
  double doubt = 0;  // of the step, as a part of it, by the digits that the clock's numbers have
  // Bins before which, within a trial, the clock goes back, jumps or is no number: more than half a step from where it should be.
  std::vector<std::int64_t> seams;
  std::string worst;           // of the seams, in words: "go back by 3 s at bin 720, in trial 5"
  double first = 0, last = 0;  // seconds, of the first and the last bin
};

// `seconds` and `trials` of each bin, of one length. Numbers that all fit float32 are taken to be rounded to it: late in a
// session their steps differ by that alone.
[[nodiscard]] ClockSeen look_at_clock(std::span<const double> seconds, std::span<const std::int64_t> trials);

}  // namespace millrace::recipes::neural_response
