// Sample images of known noise.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace millrace::recipes::image_pairs {

// Standard deviations of the noise, on the scale 0 to 255.
inline constexpr std::array<std::int64_t, 7> kNoiseLevels = {0, 5, 10, 15, 25, 35, 50};

struct SampleImages {
  std::int64_t size = 32;    // rows and columns
  std::int64_t images = 70;  // equally many of each level, within one
  // Folder of clean photographs (PNG, JPEG) from which random crops are taken; empty: textures of six waves for each channel.
  std::filesystem::path clean = {};
};
// For the presets smoke, small, full and original; nullopt for other names.
[[nodiscard]] std::optional<SampleImages> sample_images_of(const std::string& preset);

// Texture number `image` before noise: values [size,size,3] in [0, 255].
[[nodiscard]] std::vector<float> texture(std::int64_t size, std::uint64_t seed, std::int64_t image);

// Writes images/<name>.png, labels.txt (name and score: minus the noise's deviation) and truth.json into `out`. The same seed
// gives the same bytes on any number of threads. Crops of one photograph have its name first and form a group in groups.txt.
// DataError: no photograph, or one smaller than a crop.
void write_sample_images(const SampleImages& what, const std::filesystem::path& out, std::uint64_t seed);

}  // namespace millrace::recipes::image_pairs
