// What becomes of flagged visibilities.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/recipes/cosmology/uvh5_cube.h"

namespace millrace::recipes::cosmology::uvh5 {

enum class FlagRule : std::uint8_t { interpolate, zero, keep };

struct FlagWish {
  FlagRule rule = FlagRule::interpolate;
  double most = 0.5;      // a larger share of flagged values is refused
  bool fill_bad = false;  // values that no file has, or that are not finite, count as flagged
};

struct FlagCount {
  std::int64_t values = 0, flagged = 0;
  std::int64_t absent = 0, not_finite = 0;  // of those flagged: by fill_bad
  std::int64_t spectra = 0;                 // whole spectra of a baseline, filled from other times
};

// Changes `cube` by the rule. interpolate: linear between the nearest values of the spectrum that are not flagged, the nearest
// one beyond its last; where a baseline's whole spectrum is flagged, the same along time. keep: values stay as they are in the
// file. Adds to `problems`: more flagged than `most`, a baseline flagged throughout, values that are absent or not finite. `what`
// names the cube in them.
FlagCount apply_flags(Visibilities& cube, const Axes& axes, const FlagWish& wish, const std::string& what,
                      std::vector<Problem>& problems);

// "3.1 % of the values (317,440) interpolated"; "none" when there are none.
[[nodiscard]] std::string text_of_flags(const FlagCount& count, const FlagWish& wish);

}  // namespace millrace::recipes::cosmology::uvh5
