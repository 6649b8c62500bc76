// Visibilities of several uvh5 files put together: the axes they span, what is chosen of them, and the values of one
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

// Part of an axis: [begin, end); end -1: to the end.
struct Part {
  std::int64_t begin = 0, end = -1;
};

// What is taken of the files. Everything but autos, unless something is named.
struct Selection {
  std::vector<std::int64_t> polarisations;
  std::vector<Baseline> baselines;
  std::vector<std::int64_t> antennas;  // both of a baseline must be among them
  bool autos = false;                  // baselines of an antenna with itself
  Part channels, times;                // of the joined axes
  std::optional<std::pair<double, double>> band_mhz;
};

// Of all files together: baselines by their antennas' numbers, each turned as it is first met; times and channels ascending.
// Times within a millisecond are one, channels within a hertz.
struct Axes {
  std::vector<Baseline> baselines;
  std::vector<double> times;
  std::vector<double> freq_hz;
  std::vector<std::int64_t> polarisations;
  std::string unit;
  bool wide = false;                               // some file has complex128
  std::vector<std::string> told;                   // what was left out
  std::vector<std::array<double, 2>> separations;  // of the baselines, east and north in metres; empty: the files do not say

  [[nodiscard]] Shape shape() const {
    return {static_cast<std::int64_t>(baselines.size()), static_cast<std::int64_t>(freq_hz.size()),
            static_cast<std::int64_t>(times.size())};
  }
};

// nullopt after adding to `problems`: a choice that leaves nothing, files of unlike units, too few rows for the axes they span.
[[nodiscard]] std::optional<Axes> axes_of(std::span<const Header> files, const Selection& selection,
                                          std::vector<Problem>& problems);

enum class Value : std::uint8_t { absent, good, flagged };

// One polarisation: (baselines, channels, times), row-major. Flagged: by /Data/flags, or no sample went into it (/Data/nsamples).
struct Visibilities {
  Shape shape;
  std::vector<std::complex<double>> values;  // complex64 is kept exactly
  std::vector<Value> states;
};

// "0-12".
[[nodiscard]] std::string text_of(const Baseline& baseline);

// The same axes with `count` of the baselines, from the `first` on.
[[nodiscard]] Axes of_baselines(const Axes& axes, std::int64_t first, std::int64_t count);

// Turns the baselines of `axes` that `like` has the other way round; false, and nothing is turned, when they are other antennas.
bool turn_like(Axes& axes, const Axes& like);

// Reads some 64 MB of a file at a time. A row whose antennas are the other way round is conjugated, and its xy is the baseline's
// yx. `twice` gets a count for each file of values that were there before.
[[nodiscard]] Visibilities read_visibilities(std::span<const Header> files, const Axes& axes, std::int64_t polarisation,
                                             std::span<std::int64_t> twice);

}  // namespace millrace::recipes::cosmology::uvh5
