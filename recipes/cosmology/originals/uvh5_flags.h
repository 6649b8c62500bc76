// The treatment of flagged visibilities.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "recipes/cosmology/originals/uvh5_cube.h"

namespace millrace::recipes::cosmology::uvh5 {

enum class FlagRule : std::uint8_t { interpolate, zero, keep };

struct FlagWish {
  FlagRule rule = FlagRule::interpolate;
  double most = 0.5;      // a larger share of flagged values is refused
  bool fill_bad = false;  // absent and non-finite values count as flagged
};

struct FlagCount {
  std::int64_t values = 0, flagged = 0;
  std::int64_t absent = 0, not_finite = 0;  // values that count as flagged because of fill_bad
  std::int64_t spectra = 0;                 // whole spectra of a baseline that were filled from other times
};

// Applies the rule to one polarisation, one block of baselines after the other. interpolate: linear between the nearest unflagged
// values of the spectrum, beyond its last one the nearest; if a baseline's whole spectrum is flagged, the same along time. keep:
// values stay as in the file.
class FlagWork {
 public:
  // `what` names the polarisation in problems. `wish` must outlive this.
  FlagWork(const FlagWish& wish, std::string what) : wish_(wish), what_(std::move(what)) {}
  // Changes `block`: some baselines, with all channels and times of the choice. `axes` are the block's own.
  void apply(Visibilities& block, const Axes& axes);
  // Checks all blocks. Adds to `problems`: a share of flagged values above `most`, a baseline flagged throughout, absent or
  // non-finite values.
  [[nodiscard]] FlagCount finish(std::vector<Problem>& problems) const;

 private:
  void count_states(Visibilities& block, const Axes& axes);
  void interpolate(Visibilities& block, const Axes& axes);

  const FlagWish& wish_;
  std::string what_;
  FlagCount count_;
  std::string absent_place_, bad_place_;  // of the first such value
  std::vector<std::string> dead_;         // baselines flagged throughout
};

// "3.1 % of the values (317,440) interpolated"; "none" if no value is flagged.
[[nodiscard]] std::string text_of_flags(const FlagCount& count, const FlagWish& wish);

}  // namespace millrace::recipes::cosmology::uvh5
