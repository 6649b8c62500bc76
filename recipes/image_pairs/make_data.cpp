#include "recipes/image_pairs/make_data.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>
#include <span>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/fs.h"
#include "millrace/base/json.h"
#include "millrace/base/philox.h"
#include "millrace/data/files/folder.h"
#include "millrace/data/files/image.h"
#include "millrace/format/png.h"
#include "millrace/system/on_all_cores.h"

namespace millrace::recipes::image_pairs {
namespace {

// These keys make the random numbers of waves, of noise and of crops differ.
constexpr std::uint64_t kWaveKey = 91, kNoiseKey = 92, kCropKey = 93;
constexpr std::size_t kWaves = 6, kTextureChannels = 3;
constexpr double kMostFrequency = 0.12;  // highest frequency of a wave, in cycles per pixel
constexpr double kMostAmplitude = 30, kMiddle = 127;

struct Wave {
  double across = 0, down = 0, phase = 0;
  std::array<double, kTextureChannels> amplitudes{};
};

std::array<Wave, kWaves> waves(std::uint64_t seed, std::int64_t image) {
  Philox random(make_key(seed, kWaveKey, static_cast<std::uint64_t>(image)));
  std::array<Wave, kWaves> all;
  for (Wave& wave : all) {
    const auto frequency = [&] { return (random.below(2) == 0 ? -1 : 1) * kMostFrequency * random.uniform(); };
    wave.across = frequency();
    wave.down = frequency();
    wave.phase = 2 * std::numbers::pi * random.uniform();
    for (double& amplitude : wave.amplitudes) amplitude = kMostAmplitude * random.uniform();
  }
  return all;
}

struct Photograph {
  std::filesystem::path path;
  format::PictureSize size;
};

std::vector<Photograph> photographs(const SampleImages& what) {
  std::vector<Photograph> all;
  if (what.clean.empty()) return all;
  for (const auto& path : data::files_in(what.clean, {".png", ".jpg", ".jpeg"})) {
    const format::PictureSize size = data::Image(path).size();
    if (std::min(size.height, size.width) < what.size) {
      throw DataError({"the photograph has " + std::to_string(size.height) + " x " + std::to_string(size.width) +
                           " pixels, but crops have " + std::to_string(what.size) + " x " + std::to_string(what.size),
                       path.string(), "leave it out, or choose a preset with smaller images"});
    }
    all.push_back({path, size});
  }
  return all;
}

std::vector<std::byte> decoded(const Photograph& photograph) {
  std::vector<std::byte> pixels(static_cast<std::size_t>(photograph.size.height * photograph.size.width) * kTextureChannels);
  data::Image(photograph.path)
      .decode(data::Pixels::rgb, 1, {.top = 0, .left = 0, .height = photograph.size.height, .width = photograph.size.width},
              pixels);
  return pixels;
}

std::vector<float> crop(const Photograph& from, std::span<const std::byte> pixels, std::int64_t size, std::uint64_t seed,
                        std::int64_t image) {
  Philox random(make_key(seed, kCropKey, static_cast<std::uint64_t>(image)));
  const std::uint64_t top = random.below(static_cast<std::uint64_t>(from.size.height - size) + 1);
  const std::uint64_t left = random.below(static_cast<std::uint64_t>(from.size.width - size) + 1);
  const std::size_t pitch = static_cast<std::size_t>(from.size.width) * kTextureChannels,
                    row_bytes = static_cast<std::size_t>(size) * kTextureChannels;
  std::vector<float> values;
  values.reserve(static_cast<std::size_t>(size) * row_bytes);
  for (std::size_t y = 0; y < static_cast<std::size_t>(size); ++y) {
    for (const std::byte value : pixels.subspan((top + y) * pitch + left * kTextureChannels, row_bytes))
      values.push_back(static_cast<float>(std::to_integer<int>(value)));
  }
  return values;
}

std::vector<std::byte> noisy(const std::vector<float>& clean, double deviation, std::uint64_t seed, std::int64_t image) {
  Philox random(make_key(seed, kNoiseKey, static_cast<std::uint64_t>(image)));
  std::vector<std::byte> pixels(clean.size());
  for (std::size_t i = 0; i < clean.size(); ++i) {
    const double value = std::round(static_cast<double>(clean[i]) + deviation * random.normal());
    pixels[i] = static_cast<std::byte>(std::clamp(value, 0.0, 255.0));
  }
  return pixels;
}

std::string padded(std::int64_t number, std::size_t digits) {
  const std::string text = std::to_string(number);
  return std::string(digits - std::min(digits, text.size()), '0') + text;
}

// Decides the content and the noise level of each image by its number.
struct ImagePlan {
  const SampleImages& what;
  std::vector<Photograph> clean;  // empty: images are textures

  static std::int64_t level_of(std::int64_t image) {
    return kNoiseLevels.at(static_cast<std::size_t>(image) % kNoiseLevels.size());
  }
  // The noise level changes with each image, and the photograph only after all levels. So each photograph occurs with all
  // levels.
  std::size_t photograph_of(std::int64_t image) const {
    return static_cast<std::size_t>(image) / kNoiseLevels.size() % clean.size();
  }
  std::string name_of(std::int64_t image) const {
    std::string begin = clean.empty() ? "tex" : clean[photograph_of(image)].path.stem().string();
    if (begin.starts_with('#')) begin.insert(0, "photo");  // otherwise the photograph's lines in labels.txt would be comments
    return begin + "_" + padded(image, 4) + "_s" + padded(level_of(image), 2) + ".png";
  }
  // Splits the images into lists; one thread makes the images of a list. A list has many crops of one photograph, so that
  // decoding the photograph costs little in comparison.
  std::vector<std::vector<std::int64_t>> tasks() const {
    constexpr std::size_t kTogether = 64;
    std::vector<std::vector<std::int64_t>> all, open(clean.size());
    for (std::int64_t image = 0; image < what.images; ++image) {
      if (clean.empty()) {
        all.push_back({image});
        continue;
      }
      std::vector<std::int64_t>& task = open[photograph_of(image)];
      task.push_back(image);
      if (task.size() == kTogether) all.push_back(std::exchange(task, {}));
    }
    std::ranges::copy_if(open, std::back_inserter(all), [](const auto& task) { return !task.empty(); });
    return all;
  }
};

// Writes the image without a temporary file, because the folder as a whole appears only when it is complete.
void write_image(Fs& fs, const std::filesystem::path& path, std::int64_t size, std::span<const std::byte> pixels) {
  const auto file = fs.create(path);
  file->write(format::encode_png({.height = size, .width = size}, pixels));
  file->close();
}

}  // namespace

std::optional<SampleImages> sample_images_of(const std::string& preset) {
  if (preset == "smoke") return SampleImages{.size = 32, .images = 1050};
  if (preset == "small") return SampleImages{.size = 64, .images = 3500};
  if (preset == "full" || preset == "original") return SampleImages{.size = 336, .images = 5500};
  return std::nullopt;
}

std::vector<float> texture(std::int64_t size, std::uint64_t seed, std::int64_t image) {
  const auto side = static_cast<std::size_t>(size);
  std::vector<double> sums(side * side * kTextureChannels, kMiddle), sines(side), cosines(side);
  for (const Wave& wave : waves(seed, image)) {
    for (std::size_t x = 0; x < side; ++x) {
      const double angle = 2 * std::numbers::pi * wave.across * static_cast<double>(x);
      sines[x] = std::sin(angle);
      cosines[x] = std::cos(angle);
    }
    std::size_t at = 0;
    for (std::size_t y = 0; y < side; ++y) {
      const double angle = 2 * std::numbers::pi * wave.down * static_cast<double>(y) + wave.phase;
      const double sine = std::sin(angle), cosine = std::cos(angle);
      for (std::size_t x = 0; x < side; ++x) {
        // sin(a + b) = sin a cos b + cos a sin b, which needs only two products
        const double height = sines[x] * cosine + cosines[x] * sine;
        for (const double amplitude : wave.amplitudes) sums[at++] += amplitude * height;
      }
    }
  }
  std::vector<float> values(sums.size());
  std::ranges::transform(sums, values.begin(), [](double sum) { return static_cast<float>(std::clamp(sum, 0.0, 255.0)); });
  return values;
}

void write_sample_images(const SampleImages& what, const std::filesystem::path& out, std::uint64_t seed) {
  const ImagePlan plan{what, photographs(what)};
  Fs& fs = Fs::real();
  fs.create_directories(out / "images");
  const auto tasks = plan.tasks();
  on_all_cores(std::ssize(tasks), [&](std::int64_t i) {
    const std::vector<std::int64_t>& task = tasks[static_cast<std::size_t>(i)];
    const Photograph* from = plan.clean.empty() ? nullptr : &plan.clean[plan.photograph_of(task.front())];
    const std::vector<std::byte> photograph = from != nullptr ? decoded(*from) : std::vector<std::byte>{};
    for (const std::int64_t image : task) {
      const std::vector<float> clean =
          from != nullptr ? crop(*from, photograph, what.size, seed, image) : texture(what.size, seed, image);
      write_image(fs, out / "images" / plan.name_of(image), what.size,
                  noisy(clean, static_cast<double>(ImagePlan::level_of(image)), seed, image));
    }
  });
  std::string labels = "# name score: minus the standard deviation of the noise, on the scale 0 to 255\n";
  for (std::int64_t image = 0; image < what.images; ++image)
    labels += plan.name_of(image) + " " + std::to_string(-ImagePlan::level_of(image)) + "\n";
  write_atomically(fs, out / "labels.txt", labels);
  Json truth = {{"recipe", "image_pairs"},
                {"seed", seed},
                {"images", what.images},
                {"size", what.size},
                {"clean", plan.clean.empty() ? "textures of six waves" : "crops of photographs"},
                {"noise_levels", kNoiseLevels},
                {"score", "minus the standard deviation of the noise"},
                {"best_accuracy", "the classical estimator (recipe.baseline) answers nearly all pairs correctly"}};
  if (!plan.clean.empty()) {  // crops of a photograph overlap, so the crops of each photograph are a group
    std::string groups = "# name<tab>group: the photograph; images of one group lie on one side of a fold\n";
    for (std::int64_t image = 0; image < what.images; ++image)
      groups += plan.name_of(image) + "\t" + plan.clean[plan.photograph_of(image)].path.filename().string() + "\n";
    write_atomically(fs, out / "groups.txt", groups);
  }
  write_atomically(fs, out / "truth.json", truth.dump(2) + "\n");
}

}  // namespace millrace::recipes::image_pairs
