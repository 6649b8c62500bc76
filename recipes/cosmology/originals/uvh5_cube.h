// Visibilities of several uvh5 files combined: their joint axes, the selection from them, and the values of one polarisation.
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

// Part of an axis: [begin, end); end -1: to the end.
struct Part {
  std::int64_t begin = 0, end = -1;
};

// The selection from the files: by default everything but autos.
struct Selection {
  std::vector<std::int64_t> polarisations;
  std::vector<Baseline> baselines;
  std::vector<std::int64_t> antennas;  // both antennas of a baseline must be among them
  bool autos = false;                  // includes baselines of an antenna with itself
  Part channels, times;                // along the joined axes
  std::optional<std::pair<double, double>> band_mhz;
};

// The joint axes of all files: baselines by their antennas' numbers, each in the direction in which it first occurs; times and
// channels ascending. Times within a millisecond are merged, as are channels within a hertz.
struct Axes {
  std::vector<Baseline> baselines;
  std::vector<double> times;
  std::vector<double> freq_hz;
  std::vector<std::int64_t> polarisations;
  std::string unit;
  bool wide = false;                               // at least one file has complex128
  std::vector<std::string> notices;                // about data that was left out
  std::vector<std::array<double, 2>> separations;  // east and north of each baseline in metres; empty: not in the files

  [[nodiscard]] Shape shape() const {
    return {static_cast<std::int64_t>(baselines.size()), static_cast<std::int64_t>(freq_hz.size()),
            static_cast<std::int64_t>(times.size())};
  }
};

// Returns nullopt after adding to `problems`: an empty selection, files of different units, too few rows for their axes.
[[nodiscard]] std::optional<Axes> axes_of(std::span<const Header> files, const Selection& selection,
                                          std::vector<Problem>& problems);

enum class Value : std::uint8_t { absent, good, flagged };

// One polarisation: (baselines, channels, times), row-major. Flagged: by /Data/flags, or without samples (/Data/nsamples).
struct Visibilities {
  Shape shape;
  std::vector<std::complex<double>> values;  // exact for complex64
  std::vector<Value> states;
};

// "0-12".
[[nodiscard]] std::string text_of(const Baseline& baseline);

// The same axes with `count` of the baselines, starting at `first`.
[[nodiscard]] Axes of_baselines(const Axes& axes, std::int64_t first, std::int64_t count);

// Turns the baselines of `axes` that have the other direction in `like`; returns false and changes nothing if the antennas
// differ.
bool turn_like(Axes& axes, const Axes& like);

// Reads some 64 MB of a file at a time. A row whose antennas are the other way round is conjugated, and its xy becomes the
// baseline's yx. `twice` receives, for each file, the number of values that an earlier one already had.
[[nodiscard]] Visibilities read_visibilities(std::span<const Header> files, const Axes& axes, std::int64_t polarisation,
                                             std::span<std::int64_t> twice);

}  // namespace millrace::recipes::cosmology::uvh5
