#include "recipes/cosmology/make_data.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "millrace/base/fs.h"
#include "millrace/base/json.h"
#include "millrace/base/philox.h"
#include "millrace/hdf5/file.h"

namespace millrace::recipes::cosmology {
namespace {

constexpr std::uint64_t kForegroundKey = 31;
constexpr std::uint64_t kSignalKey = 32;
constexpr int kHarmonics = 8;  // the number of harmonics on each side of harmonic zero
constexpr std::uint64_t kPixelsPerImpulse = 4096;
constexpr double kChannelSigma = 2;
constexpr double kRaSigma = 4;

std::complex<double> complex_normal(Philox& random) {  // a complex normal number c, scaled to E|c|^2 = 1
  const double real = random.normal();
  const double imaginary = random.normal();
  return std::complex<double>(real, imaginary) * std::numbers::sqrt2 / 2.0;
}

// The Legendre polynomial P_k(t), computed by its recurrence.
double legendre(std::int64_t k, double t) {
  double before = 1;
  double now = t;
  if (k == 0) return before;
  for (std::int64_t n = 1; n < k; ++n) {
    const auto m = static_cast<double>(n);
    const double next = ((2 * m + 1) * t * now - m * before) / (m + 1);
    before = now;
    now = next;
  }
  return now;
}

double sum_of_squares(const Cube& cube) {
  double sum = 0;
  for (const auto& value : cube) sum += std::norm(value);
  return sum;
}

// Adds a Gaussian of this strength around (channel, ra) of a baseline to `out`, up to six deviations away. The Gaussian wraps
// around at the ends of both axes.
void spread(const SkySize& size, std::int64_t channel, std::int64_t ra, std::complex<double> strength,
            std::complex<double>* out) {
  constexpr std::int64_t kReachF = static_cast<std::int64_t>(6 * kChannelSigma);
  constexpr std::int64_t kReachR = static_cast<std::int64_t>(6 * kRaSigma);
  const auto wrapped = [](std::int64_t i, std::int64_t n) { return ((i % n) + n) % n; };
  for (std::int64_t df = -kReachF; df <= kReachF; ++df) {
    const double across = std::exp(-0.5 * static_cast<double>(df * df) / (kChannelSigma * kChannelSigma));
    std::complex<double>* row = out + wrapped(channel + df, size.frequencies) * size.ra;
    for (std::int64_t dr = -kReachR; dr <= kReachR; ++dr) {
      const double along = std::exp(-0.5 * static_cast<double>(dr * dr) / (kRaSigma * kRaSigma));
      row[wrapped(ra + dr, size.ra)] += strength * (across * along);
    }
  }
}

void write_cube(const std::filesystem::path& path, const SkySize& size, const Cube& cube) {
  const std::vector<std::complex<float>> vis(cube.begin(), cube.end());
  const std::vector<double> freq = sky_frequencies(size.frequencies);
  std::vector<double> baselines;
  for (std::int64_t b = 0; b < size.baselines; ++b) {
    baselines.push_back(7.0 * static_cast<double>(b % 8));
    baselines.push_back(7.0 * static_cast<double>(b / 8));
  }
  const std::vector<hdf5::Array> arrays = {
      {.name = "/vis", .dtype = DType::c64, .shape = size.shape(), .bytes = std::as_bytes(std::span(vis))},
      {.name = "/index_map/freq", .dtype = DType::f64, .shape = {size.frequencies}, .bytes = std::as_bytes(std::span(freq))},
      {.name = "/index_map/baselines",
       .dtype = DType::f64,
       .shape = {size.baselines, 2},
       .bytes = std::as_bytes(std::span(baselines))}};
  hdf5::write_file(path, arrays);
}

std::string numbered(const char* prefix, std::int64_t file) {
  const std::string digits = std::to_string(file);
  return std::string(prefix) + (digits.size() < 2 ? "0" : "") + digits + ".h5";
}

}  // namespace

std::vector<double> sky_frequencies(std::int64_t count) {
  std::vector<double> centres;
  for (std::int64_t i = 0; i < count; ++i)
    centres.push_back(500.0 + (static_cast<double>(i) + 0.5) * 100.0 / static_cast<double>(count));
  return centres;
}

Cube sky_foreground(const SkySize& size, std::uint64_t seed, std::int64_t file) {
  Cube cube(static_cast<std::size_t>(size.baselines * size.frequencies * size.ra));
  Philox random(make_key(seed, kForegroundKey, static_cast<std::uint64_t>(file)));
  const std::vector<double> freq = sky_frequencies(size.frequencies);
  std::vector<std::complex<double>> shape(static_cast<std::size_t>(size.ra));
  for (std::int64_t k = 0; k < size.rank; ++k) {
    const double amplitude = std::pow(10.0, -0.5 * static_cast<double>(k)) / std::sqrt(2.0 * kHarmonics + 1.0);
    for (std::int64_t b = 0; b < size.baselines; ++b) {
      std::fill(shape.begin(), shape.end(), 0.0);
      for (int m = -kHarmonics; m <= kHarmonics; ++m) {
        const std::complex<double> strength = complex_normal(random) * amplitude;
        const double turn = 2 * std::numbers::pi * m / static_cast<double>(size.ra);
        for (std::int64_t r = 0; r < size.ra; ++r)
          shape[static_cast<std::size_t>(r)] += strength * std::polar(1.0, turn * static_cast<double>(r));
      }
      for (std::int64_t f = 0; f < size.frequencies; ++f) {
        const double t = -1.0 + 2.0 * static_cast<double>(f) / static_cast<double>(size.frequencies - 1);
        const double factor = legendre(k, t) * std::pow(freq[static_cast<std::size_t>(f)] / 550.0, -2.55);
        std::complex<double>* row = cube.data() + (b * size.frequencies + f) * size.ra;
        for (std::int64_t r = 0; r < size.ra; ++r) row[r] += shape[static_cast<std::size_t>(r)] * factor;
      }
    }
  }
  return cube;
}

Cube sky_signal(const SkySize& size, std::uint64_t seed, std::int64_t file) {
  const std::int64_t plane = size.frequencies * size.ra;
  Cube cube(static_cast<std::size_t>(size.baselines * plane));
  Philox random(make_key(seed, kSignalKey, static_cast<std::uint64_t>(file)));
  std::int64_t impulses = 0;
  for (std::int64_t pixel = 0; pixel < size.baselines * plane; ++pixel) {
    if (random.below(kPixelsPerImpulse) != 0) continue;
    ++impulses;
    const std::int64_t place = pixel % plane;
    spread(size, place / size.ra, place % size.ra, complex_normal(random), cube.data() + pixel - place);
  }
  if (impulses == 0) {
    const auto place = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(plane)));
    spread(size, place / size.ra, place % size.ra, complex_normal(random), cube.data());
  }
  const double factor = kSignalRms / std::sqrt(sum_of_squares(cube) / static_cast<double>(cube.size()));
  for (auto& value : cube) value *= factor;
  return cube;
}

void write_sample_sky(const SkySize& size, const std::filesystem::path& out, std::uint64_t seed) {
  for (const char* folder : {"signal", "foreground"}) Fs::real().create_directories(out / folder);
  double foreground_power = 0;
  for (std::int64_t file = 0; file < size.files; ++file) {
    const Cube foreground = sky_foreground(size, seed, file);
    foreground_power += sum_of_squares(foreground) / static_cast<double>(foreground.size());
    write_cube(out / "foreground" / numbered("f", file), size, foreground);
    write_cube(out / "signal" / numbered("s", file), size, sky_signal(size, seed, file));
  }
  foreground_power /= static_cast<double>(size.files);
  const Json truth = {{"what", "foreground of exact rank in frequency, and sparse signal"},
                      {"shape", size.shape()},
                      {"files", size.files},
                      {"seed", seed},
                      {"foreground_rank", size.rank},
                      {"foreground_rms_kelvin", std::sqrt(foreground_power)},
                      {"signal_rms_kelvin", kSignalRms},
                      {"signal_fraction_of_variance", kSignalRms * kSignalRms / (foreground_power + kSignalRms * kSignalRms)}};
  write_atomically(Fs::real(), out / "truth.json", truth.dump(2) + "\n");
}

}  // namespace millrace::recipes::cosmology
