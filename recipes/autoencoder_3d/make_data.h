// Makes pairs of volumes whose truth is known: soft ellipsoids, and Poisson counts drawn from them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace millrace::recipes::autoencoder_3d {

struct SampleVolumes {
  std::int64_t side = 24;                   // length of a volume along each axis, in voxels
  std::int64_t train = 16, validation = 4;  // number of files
  std::int64_t patch = 16;                  // length of the patches on which a preset trains with this data
};

inline constexpr double kCountsPerUnit = 40;  // expected counts of a voxel whose value is 1; q in the formulas below

// The size of a preset's sample data: smoke and small each have their own; stable, 32g, multigpu, optimized and full share one.
// nullopt for other names.
[[nodiscard]] std::optional<SampleVolumes> sample_volumes_of(const std::string& preset);

// The values of file number `file`, (2, side, side, side). The second volume is the truth, high: at each voxel the largest of six
// terms A * sigmoid(8 (1 - rho)), where rho = |(x - centre) / axes|. Centres are uniform in the cube, axes are uniform in (0.08,
// 0.28) sides, and A is uniform in (0.2, 1). The first volume is low = Poisson(q * high) / q, so E[low] = high. The result
// depends only on the arguments, not on the number of threads.
[[nodiscard]] std::vector<float> sample_pair(std::int64_t side, std::uint64_t seed, std::int64_t file);

// Writes train/vNNN.npz, val/vNNN.npz (the array arr_0, f32) and truth.json (q, seed, means) into the existing folder `out`.
void write_sample_volumes(const SampleVolumes& size, const std::filesystem::path& out, std::uint64_t seed);

}  // namespace millrace::recipes::autoencoder_3d
