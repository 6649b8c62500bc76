// A sky of known truth: foreground of exact rank, signal of known strength, in hugh's HDF5 layout.
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
  std::int64_t rank = 3;  // of the foreground
  std::int64_t files = 54;
  [[nodiscard]] Shape shape() const { return {baselines, frequencies, ra}; }
};

inline constexpr double kSignalRms = 5e-6;  // kelvin

using Cube = std::vector<std::complex<double>>;  // (baselines, frequencies, RA), row-major

// The sample sky of a preset.
[[nodiscard]] std::optional<SkySize> sample_sky_of(const std::string& preset);

// sum over k < rank of A_k a_k(b,r) P_k(t_f) (nu_f/550)^-2.55 kelvin: P_k Legendre polynomials, t_f evenly from -1 to 1, nu_f the
// centres of equal channels over 500 to 600 MHz, A_k = 10^(-k/2), a_k a sum of the 17 lowest circular harmonics along RA with
// complex normal coefficients, E|a|^2 = 1. As a matrix over frequencies it has this rank for any number of files. A pure function
// of its arguments.
[[nodiscard]] Cube sky_foreground(const SkySize& size, std::uint64_t seed, std::int64_t file);

// Complex normal impulses, one pixel in 4096 (at least one), spread by a circular Gaussian of 2 channels and 4 RA samples, scaled
// to rms kSignalRms. A pure function of its arguments.
[[nodiscard]] Cube sky_signal(const SkySize& size, std::uint64_t seed, std::int64_t file);

[[nodiscard]] std::vector<double> sky_frequencies(std::int64_t count);  // MHz

// Writes signal/sNN.h5, foreground/fNN.h5 (/vis complex64, /index_map/freq, /index_map/baselines) and truth.json into the
// existing folder `out`.
void write_sample_sky(const SkySize& size, const std::filesystem::path& out, std::uint64_t seed);

}  // namespace millrace::recipes::cosmology
