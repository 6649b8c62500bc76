// Decides what happens to flagged visibilities.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "recipes/cosmology/originals/uvh5_cube.h"

namespace millrace::recipes::cosmology::uvh5 {

enum class FlagRule : std::uint8_t { interpolate, zero, keep };

struct FlagWish {
  FlagRule rule = FlagRule::interpolate;
  double most = 0.5;      // the largest share of flagged values that is accepted
  bool fill_bad = false;  // true: values that are missing or not finite count as flagged
};

struct FlagCount {
  std::int64_t values = 0, flagged = 0;
  std::int64_t absent = 0, not_finite = 0;  // numbers of values that count as flagged because of fill_bad
  std::int64_t spectra = 0;                 // number of whole spectra of a baseline that were filled from other times
};

// Handles the flagged values of a polarisation, one block of baselines at a time. With FlagRule::interpolate, a flagged value
// becomes the linear interpolation between the nearest unflagged values of its spectrum. Flagged values at the ends of a
// spectrum become the nearest unflagged value. If a baseline's whole spectrum at a time is flagged, the spectrum is interpolated
// along time instead. With FlagRule::keep, values stay as they are in the file.
class FlagWork {
 public:
  // `what`: the name of the polarisation in problems. `wish` must outlive this object.
  FlagWork(const FlagWish& wish, std::string what) : wish_(wish), what_(std::move(what)) {}
  // Changes the values of `block`, which has some of the baselines with all selected channels and times. `axes`: the axes of this
  // block.
  void apply(Visibilities& block, const Axes& axes);
  // Called after all blocks. Adds to `problems` if the share of flagged values exceeds `most`, if all values of a baseline are
  // flagged, or if values are missing or not finite.
  [[nodiscard]] FlagCount finish(std::vector<Problem>& problems) const;

 private:
  void count_states(Visibilities& block, const Axes& axes);
  void interpolate(Visibilities& block, const Axes& axes);

  const FlagWish& wish_;
  std::string what_;
  FlagCount count_;
  std::string absent_place_, bad_place_;  // where the first missing value and the first non-finite value are
  std::vector<std::string> dead_;         // baselines whose values are all flagged
};

// A text such as "3.1 % of the values (317,440) interpolated"; "none" if no value is flagged.
[[nodiscard]] std::string text_of_flags(const FlagCount& count, const FlagWish& wish);

}  // namespace millrace::recipes::cosmology::uvh5
