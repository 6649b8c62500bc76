// Pairs of volumes of known truth: soft ellipsoids and Poisson counts drawn from them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace millrace::recipes::autoencoder_3d {

struct SampleVolumes {
  std::int64_t side = 24;                   // voxels along each axis
  std::int64_t train = 16, validation = 4;  // files
  std::int64_t patch = 16;                  // patch on which a preset of this data trains
};

inline constexpr double kCountsPerUnit = 40;  // q

// For the presets smoke and small, and one shared size for stable, 32g, multigpu, optimized and full.
[[nodiscard]] std::optional<SampleVolumes> sample_volumes_of(const std::string& preset);

// The values of file `file`, (2, side, side, side): low, Poisson(q * high) / q; then high, at each voxel the largest of six A *
// sigmoid(8 (1 - rho)), rho = |(x - centre) / axes|, centres uniform in the cube, axes uniform in (0.08, 0.28) sides, A uniform
// in (0.2, 1). E[low] = high. A pure function of its arguments, the same on any number of threads.
[[nodiscard]] std::vector<float> sample_pair(std::int64_t side, std::uint64_t seed, std::int64_t file);

// Writes train/vNNN.npz, val/vNNN.npz (arr_0, f32) and truth.json (q, seed, means) into the existing folder `out`.
void write_sample_volumes(const SampleVolumes& size, const std::filesystem::path& out, std::uint64_t seed);

}  // namespace millrace::recipes::autoencoder_3d
