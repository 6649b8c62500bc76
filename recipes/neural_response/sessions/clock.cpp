#include "recipes/neural_response/sessions/clock.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "millrace/base/format.h"
#include "millrace/base/median.h"

namespace millrace::recipes::neural_response {
namespace {

// The largest error that rounding of `seconds` can cause in the difference of two of these numbers.
double rounding_of(std::span<const double> seconds) {
  double most = 0;
  bool fits_float = true;
  for (const double value : seconds) {
    if (!std::isfinite(value)) continue;
    most = std::max(most, std::abs(value));
    fits_float = fits_float && static_cast<double>(static_cast<float>(value)) == value;
  }
  return std::ldexp(most, fits_float ? -23 : -50);
}

std::string words_of(double step, double expected, std::int64_t bin, std::int64_t trial) {
  std::string what = "are no number";
  if (std::isfinite(step))
    what = step < 0 ? "go back by " + significant(-step, 3) + " s" : "step by " + significant(step, 3) + " s";
  return what + " at bin " + std::to_string(bin) + ", in trial " + std::to_string(trial) + ", where a step usually takes " +
         significant(expected * 1e3, 3) + " ms";
}

}  // namespace

ClockSeen look_at_clock(std::span<const double> seconds, std::span<const std::int64_t> trials) {
  ClockSeen seen;
  if (!seconds.empty()) {
    seen.first = seconds.front();
    seen.last = seconds.back();
  }
  std::vector<double> steps;
  for (std::size_t t = 1; t < seconds.size(); ++t) {
    const double step = seconds[t] - seconds[t - 1];
    if (trials[t] == trials[t - 1] && std::isfinite(step)) steps.push_back(step);
  }
  if (steps.empty()) return seen;
  const double expected = millrace::median(std::move(steps));
  const double rounding = rounding_of(seconds);
  if (std::abs(expected) <= rounding) return seen;
  seen.step_seconds = expected;
  if (expected < 0) return seen;
  double sum = 0, worst = -1;
  std::int64_t count = 0, stretches = 0;
  bool in_stretch = false;
  for (std::size_t t = 1; t < seconds.size(); ++t) {
    const bool follows = trials[t] == trials[t - 1];
    const double step = seconds[t] - seconds[t - 1];
    const double off = std::isfinite(step) ? std::abs(step - expected) : std::numeric_limits<double>::infinity();
    const bool sound = follows && off <= expected / 2 + rounding;
    if (sound) {
      sum += step;
      ++count;
      if (!in_stretch) ++stretches;
    } else if (follows) {
      seen.seams.push_back(static_cast<std::int64_t>(t));
      if (off > worst) seen.worst = words_of(step, expected, static_cast<std::int64_t>(t), trials[t]);
      worst = std::max(worst, off);
    }
    in_stretch = sound;
  }
  if (count == 0) return seen;
  seen.step_seconds = sum / static_cast<double>(count);
  seen.doubt = static_cast<double>(stretches) * rounding / sum;
  return seen;
}

}  // namespace millrace::recipes::neural_response
