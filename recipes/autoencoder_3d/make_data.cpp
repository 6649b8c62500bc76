#include "recipes/autoencoder_3d/make_data.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "millrace/base/error.h"
#include "millrace/base/fs.h"
#include "millrace/base/json.h"
#include "millrace/base/philox.h"
#include "millrace/format/npy.h"
#include "millrace/system/on_all_cores.h"

namespace millrace::recipes::autoencoder_3d {
namespace {

constexpr std::uint64_t kShapeKey = 81;  // makes the shapes' random numbers differ from those of other uses of the seed
constexpr std::uint64_t kCountKey = 82;

constexpr std::size_t kEllipsoids = 6;
constexpr double kSteepness = 8;
constexpr double kLeastAxis = 0.08, kMostAxis = 0.28;  // limits of an ellipsoid's half axes, as shares of the volume's side
constexpr double kLeastPeak = 0.2;
// the most counts that a voxel can get; a Poisson number with mean q never gets this large in practice
constexpr std::uint32_t kMostCounts = 1000;

struct Ellipsoid {
  std::array<double, 3> centre{}, axes{};
  double peak = 0;
};

std::array<Ellipsoid, kEllipsoids> ellipsoids(std::int64_t side, std::uint64_t seed, std::int64_t file) {
  Philox random(make_key(seed, kShapeKey, static_cast<std::uint64_t>(file)));
  std::array<Ellipsoid, kEllipsoids> all;
  for (Ellipsoid& one : all) {
    for (double& place : one.centre) place = random.uniform() * static_cast<double>(side);
    for (double& axis : one.axes) axis = (kLeastAxis + (kMostAxis - kLeastAxis) * random.uniform()) * static_cast<double>(side);
    one.peak = kLeastPeak + (1 - kLeastPeak) * random.uniform();
  }
  return all;
}

double height_at(const Ellipsoid& one, const std::array<double, 3>& place) {
  double squares = 0;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const double distance = (place[axis] - one.centre[axis]) / one.axes[axis];
    squares += distance * distance;
  }
  return one.peak / (1 + std::exp(-kSteepness * (1 - std::sqrt(squares))));
}

struct Sums {
  double low = 0, high = 0;
  double squares = 0;  // sum of (low - high)^2
};

Sums sums_of(const std::vector<float>& pair) {
  const std::size_t voxels = pair.size() / 2;
  Sums sums;
  for (std::size_t i = 0; i < voxels; ++i) {
    const auto low = static_cast<double>(pair[i]);
    const auto high = static_cast<double>(pair[voxels + i]);
    sums.low += low;
    sums.high += high;
    sums.squares += (low - high) * (low - high);
  }
  return sums;
}

void write_pair(const std::filesystem::path& path, std::int64_t side, const std::vector<float>& pair) {
  const format::NpzArray array{{"arr_0", DType::f32, {2, side, side, side}}, std::as_bytes(std::span(pair))};
  write_atomically(Fs::real(), path, [&](WritableFile& file) { format::write_npz(file, {&array, 1}); });
}

std::string numbered(std::int64_t file) {
  const std::string digits = std::to_string(file);
  return 'v' + std::string(3 - std::min<std::size_t>(digits.size(), 3), '0') + digits + ".npz";
}

}  // namespace

std::optional<SampleVolumes> sample_volumes_of(const std::string& preset) {
  if (preset == "smoke") return SampleVolumes{.side = 24, .train = 16, .validation = 4, .patch = 16};
  if (preset == "small") return SampleVolumes{.side = 48, .train = 32, .validation = 8, .patch = 32};
  for (const char* name : {"full", "stable", "32g", "multigpu", "optimized"}) {
    if (preset == name) return SampleVolumes{.side = 96, .train = 64, .validation = 16, .patch = 64};
  }
  return std::nullopt;
}

std::vector<float> sample_pair(std::int64_t side, std::uint64_t seed, std::int64_t file) {
  const std::array<Ellipsoid, kEllipsoids> all = ellipsoids(side, seed, file);
  const std::int64_t plane = side * side;
  std::vector<float> pair(static_cast<std::size_t>(2 * plane * side));
  for (std::int64_t z = 0; z < side; ++z) {
    Philox counts(make_key(seed, kCountKey, static_cast<std::uint64_t>(file), static_cast<std::uint64_t>(z)));
    float* low = pair.data() + z * plane;
    float* high = low + plane * side;
    for (std::int64_t i = 0; i < plane; ++i) {
      const std::int64_t row = i / side;
      const std::array<double, 3> place = {static_cast<double>(z) + 0.5, static_cast<double>(row) + 0.5,
                                           static_cast<double>(i - row * side) + 0.5};
      double value = 0;
      for (const Ellipsoid& one : all) value = std::max(value, height_at(one, place));
      high[i] = static_cast<float>(value);
      low[i] = static_cast<float>(counts.poisson(kCountsPerUnit * static_cast<double>(high[i]), kMostCounts) / kCountsPerUnit);
    }
  }
  return pair;
}

void write_sample_volumes(const SampleVolumes& size, const std::filesystem::path& out, std::uint64_t seed) {
  for (const char* folder : {"train", "val"}) Fs::real().create_directories(out / folder);
  std::vector<Sums> sums(static_cast<std::size_t>(size.train + size.validation));
  on_all_cores(size.train + size.validation, [&](std::int64_t file) {
    const std::vector<float> pair = sample_pair(size.side, seed, file);
    sums[static_cast<std::size_t>(file)] = sums_of(pair);
    const bool trains = file < size.train;
    write_pair(out / (trains ? "train" : "val") / numbered(trains ? file : file - size.train), size.side, pair);
  });
  Sums all;
  for (const Sums& one : sums) {
    all.low += one.low;
    all.high += one.high;
    all.squares += one.squares;
  }
  const double voxels = static_cast<double>(size.side * size.side * size.side) * static_cast<double>(sums.size());
  const Json truth = {{"what", "high: the largest of six soft ellipsoids; low: Poisson(q * high) / q, so E[low] = high"},
                      {"shape", Shape{2, size.side, size.side, size.side}},
                      {"train_files", size.train},
                      {"val_files", size.validation},
                      {"seed", seed},
                      {"q", kCountsPerUnit},
                      {"mean_low", all.low / voxels},
                      {"mean_high", all.high / voxels},
                      {"mean_squared_error", all.squares / voxels}};
  write_atomically(Fs::real(), out / "truth.json", truth.dump(2) + "\n");
}

}  // namespace millrace::recipes::autoencoder_3d
