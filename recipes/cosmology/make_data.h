// Makes a sky whose truth is known, in hugh's HDF5 layout: a foreground of exact rank and a signal of known strength.
#pragma once

#include <complex>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/field.h"

namespace millrace::recipes::cosmology {

struct SkySize {
  std::int64_t baselines = 8, frequencies = 32, ra = 64;
  std::int64_t rank = 3;  // rank of the foreground
  std::int64_t files = 54;
  [[nodiscard]] Shape shape() const { return {baselines, frequencies, ra}; }
};

inline constexpr double kSignalRms = 5e-6;  // in kelvin

using Cube = std::vector<std::complex<double>>;  // (baselines, frequencies, RA), row-major

// The size of a preset's sample sky. nullopt if the preset has no sample sky.
[[nodiscard]] std::optional<SkySize> sample_sky_of(const std::string& preset);

// The foreground in kelvin: the sum over k < rank of A_k a_k(b,r) P_k(t_f) (nu_f/550)^-2.55. P_k are Legendre polynomials; t_f
// goes evenly from -1 to 1; nu_f are the centres of equal channels over 500 to 600 MHz; A_k = 10^(-k/2); a_k is a sum of the 17
// lowest circular harmonics along RA with complex normal coefficients, E|a|^2 = 1. As a matrix over frequencies, the foreground
// has rank size.rank for any number of files. Depends only on the arguments.
[[nodiscard]] Cube sky_foreground(const SkySize& size, std::uint64_t seed, std::int64_t file);

// The signal: complex normal impulses at one pixel in 4096 (at least one pixel), spread by a circular Gaussian of 2 channels and
// 4 RA samples, scaled to the rms kSignalRms. Depends only on the arguments.
[[nodiscard]] Cube sky_signal(const SkySize& size, std::uint64_t seed, std::int64_t file);

[[nodiscard]] std::vector<double> sky_frequencies(std::int64_t count);  // in MHz

// Writes signal/sNN.h5, foreground/fNN.h5 (data sets /vis complex64, /index_map/freq, /index_map/baselines) and truth.json into
// the existing folder `out`.
void write_sample_sky(const SkySize& size, const std::filesystem::path& out, std::uint64_t seed);

}  // namespace millrace::recipes::cosmology
