// Combines the visibilities of several uvh5 files: their joint axes, the selection from these axes, and the values of a
// polarisation.
#pragma once

#include <complex>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "recipes/cosmology/originals/uvh5_file.h"

namespace millrace::recipes::cosmology::uvh5 {

// The indices [begin, end) of an axis. end = -1 stands for the end of the axis.
struct Part {
  std::int64_t begin = 0, end = -1;
};

// The selection from the files. By default everything is selected except baselines between an antenna and itself.
struct Selection {
  std::vector<std::int64_t> polarisations;
  std::vector<Baseline> baselines;
  std::vector<std::int64_t> antennas;  // if given, both antennas of a baseline must be in this list
  bool autos = false;                  // true: includes baselines between an antenna and itself
  Part channels, times;                // indices of the joint axes
  std::optional<std::pair<double, double>> band_mhz;
};

// The joint axes of all files. A baseline is a pair of antenna numbers, in the direction in which it first occurs. Times and
// channels are ascending; times within a millisecond count as equal, and so do channels within a hertz.
struct Axes {
  std::vector<Baseline> baselines;
  std::vector<double> times;
  std::vector<double> freq_hz;
  std::vector<std::int64_t> polarisations;
  std::string unit;
  bool wide = false;                 // true: at least one file has complex128
  std::vector<std::string> notices;  // lines for the user about data that is left out
  // East and north of each baseline, in metres; empty: the files do not have them.
  std::vector<std::array<double, 2>> separations;

  [[nodiscard]] Shape shape() const {
    return {static_cast<std::int64_t>(baselines.size()), static_cast<std::int64_t>(freq_hz.size()),
            static_cast<std::int64_t>(times.size())};
  }
};

// Computes the joint axes. Returns nullopt and adds to `problems` if the selection is empty, if files have different units, or
// if the files have too few rows for the axes.
[[nodiscard]] std::optional<Axes> axes_of(std::span<const Header> files, const Selection& selection,
                                          std::vector<Problem>& problems);

enum class Value : std::uint8_t { absent, good, flagged };

// The values of a polarisation: (baselines, channels, times), row-major. A value is flagged if /Data/flags says so or if it has
// no samples (/Data/nsamples).
struct Visibilities {
  Shape shape;
  std::vector<std::complex<double>> values;  // complex64 values are represented exactly
  std::vector<Value> states;
};

// A text such as "0-12".
[[nodiscard]] std::string text_of(const Baseline& baseline);

// The same axes with only `count` of the baselines, from number `first` on.
[[nodiscard]] Axes of_baselines(const Axes& axes, std::int64_t first, std::int64_t count);

// Reverses those baselines of `axes` that have the opposite direction in `like`. If `axes` and `like` have different antennas,
// returns false and changes nothing.
bool turn_like(Axes& axes, const Axes& like);

// Reads the values, about 64 MB of a file at a time. If a row has its two antennas in the opposite order, its values are
// conjugated and its polarisation xy becomes yx. `twice` gets, for each file, the number of values that an earlier file already
// had.
[[nodiscard]] Visibilities read_visibilities(std::span<const Header> files, const Axes& axes, std::int64_t polarisation,
                                             std::span<std::int64_t> twice);

}  // namespace millrace::recipes::cosmology::uvh5
