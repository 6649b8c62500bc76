// Makes sample images with known noise.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace millrace::recipes::image_pairs {

// The standard deviations of the noise, on the scale 0 to 255.
inline constexpr std::array<std::int64_t, 7> kNoiseLevels = {0, 5, 10, 15, 25, 35, 50};

struct SampleImages {
  std::int64_t size = 32;    // number of rows and of columns of an image
  std::int64_t images = 70;  // number of images; each noise level gets the same number, or one more
  // Folder of clean photographs (PNG, JPEG), from which random crops are taken. Empty: images are textures, which have six waves
  // in each channel.
  std::filesystem::path clean = {};
};
// The sample data of the presets smoke, small, full and original. nullopt for other names.
[[nodiscard]] std::optional<SampleImages> sample_images_of(const std::string& preset);

// Texture number `image` before noise is added: values [size,size,3] in [0, 255].
[[nodiscard]] std::vector<float> texture(std::int64_t size, std::uint64_t seed, std::int64_t image);

// Writes images/<name>.png, labels.txt (name and score, which is minus the noise's deviation) and truth.json into `out`. The
// same seed gives the same bytes for any number of threads. The names of crops begin with the name of their photograph, and the
// crops of a photograph are a group in groups.txt. Throws DataError if there is no photograph, or if a photograph is smaller
// than a crop.
void write_sample_images(const SampleImages& what, const std::filesystem::path& out, std::uint64_t seed);

}  // namespace millrace::recipes::image_pairs
