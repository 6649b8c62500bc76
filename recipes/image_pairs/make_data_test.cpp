#include "recipes/image_pairs/make_data.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "millrace/base/error.h"
#include "millrace/base/fs.h"
#include "millrace/base/json.h"
#include "millrace/format/png.h"
#include "recipes/image_pairs/baseline.h"
#include "recipes/image_pairs/pair_source.h"

namespace millrace::recipes::image_pairs {
namespace {

namespace stdfs = std::filesystem;

class MakeImages : public testing::Test {
 protected:
  MakeImages() { stdfs::create_directories(folder_); }
  ~MakeImages() override { stdfs::remove_all(folder_); }
  static std::map<std::string, std::string> files_in(const stdfs::path& folder) {
    std::map<std::string, std::string> files;
    for (const auto& file : stdfs::recursive_directory_iterator(folder)) {
      if (file.is_regular_file()) files[stdfs::relative(file.path(), folder).string()] = Fs::real().read_file(file.path());
    }
    return files;
  }
  static RecipeConfig of(std::int64_t side, std::int64_t per_class) {
    RecipeConfig recipe;
    recipe.image_size = side;
    recipe.per_class = per_class;
    recipe.val_samples = 0;
    return recipe;
  }
  stdfs::path folder_ = stdfs::temp_directory_path() / ("millrace-make-images-" + std::to_string(::getpid()));
};

TEST_F(MakeImages, TheSameSeedGivesTheSameBytes) {
  write_sample_images({.size = 16, .images = 21}, folder_ / "a", 3);
  write_sample_images({.size = 16, .images = 21}, folder_ / "b", 3);
  write_sample_images({.size = 16, .images = 21}, folder_ / "c", 4);
  const auto a = files_in(folder_ / "a");
  EXPECT_EQ(a.size(), 23U);
  EXPECT_EQ(a, files_in(folder_ / "b"));
  EXPECT_NE(a, files_in(folder_ / "c"));
  std::map<double, int> levels;
  for (const Labelled& label : read_labels(folder_ / "a/labels.txt")) ++levels[label.score];
  EXPECT_EQ(levels.size(), 7U);
  for (const auto& [score, count] : levels) EXPECT_EQ(count, 3) << score;
}

// The classical estimator finds the noise levels, so it must decide nearly every pair.
TEST_F(MakeImages, TheClassicalEstimatorTellsNearlyAllPairs) {
  write_sample_images({.size = 32, .images = 210}, folder_ / "a", 0);
  const RecipeConfig recipe = of(32, 50);
  const PairFiles files = open_pairs(recipe, (folder_ / "a").string(), 42);
  std::map<double, std::vector<double>> found;
  for (const ImageFile& image : files.images) found[image.score].push_back(noise_of(read_image(image.path, recipe), 32));
  const std::map<double, double> due = {{0, 0.40}, {-5, 5.0}, {-10, 10.0}, {-15, 15.0}, {-25, 24.9}, {-35, 34.9}, {-50, 49.0}};
  for (const auto& [score, values] : found) {
    const double mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
    EXPECT_NEAR(mean, due.at(score), 0.6) << score;
  }
  const auto read = [&](std::int64_t image) { return read_image(files.images[static_cast<std::size_t>(image)].path, recipe); };
  EXPECT_GE(baseline_accuracy(files.validation, files.images, recipe.theta, 32, read), 0.99);
}

TEST_F(MakeImages, CropsOfAPhotographAreOneGroup) {
  for (int i = 0; i < 2; ++i) {
    std::vector<std::byte> pixels(40 * 50 * 3);
    for (std::size_t k = 0; k < pixels.size(); ++k) pixels[k] = std::byte((k / 7 + static_cast<std::size_t>(i) * 90) % 256);
    format::write_png(Fs::real(), folder_ / ("photo" + std::to_string(i) + ".png"), {.height = 40, .width = 50}, pixels);
  }
  write_sample_images({.size = 32, .images = 28, .clean = folder_}, folder_ / "out", 0);
  const auto labels = read_labels(folder_ / "out/labels.txt");
  EXPECT_EQ(std::ranges::count_if(labels, [](const Labelled& label) { return label.name.starts_with("photo1_"); }), 14);
  for (const Labelled& label : labels) EXPECT_EQ(label.group, label.name.substr(0, label.name.find('_')) + ".png");
  const auto folds = deal_folds(labels, 2, 42);
  for (const auto& fold : folds) {
    for (const std::int64_t image : fold)
      EXPECT_EQ(labels[static_cast<std::size_t>(image)].group, labels[static_cast<std::size_t>(fold.front())].group);
  }
  EXPECT_THROW((void)deal_folds(labels, 3, 42), DataError) << "two photographs";
  EXPECT_THROW(write_sample_images({.size = 64, .images = 7, .clean = folder_}, folder_ / "big", 0), DataError);
}

TEST_F(MakeImages, APhotographNamedLikeACommentIsLabelled) {
  format::write_png(Fs::real(), folder_ / "#1.png", {.height = 40, .width = 50}, std::vector<std::byte>(40 * 50 * 3));
  write_sample_images({.size = 32, .images = 7, .clean = folder_}, folder_ / "out", 0);
  const auto labels = read_labels(folder_ / "out/labels.txt");
  ASSERT_EQ(labels.size(), 7U);
  for (const Labelled& label : labels) {
    EXPECT_TRUE(stdfs::exists(folder_ / "out/images" / label.name)) << label.name;
    EXPECT_EQ(label.group, "#1.png");
  }
}

TEST_F(MakeImages, PresetsHaveThePublishedSizes) {
  EXPECT_EQ(sample_images_of("smoke")->images, 1050);
  EXPECT_EQ(sample_images_of("small")->size, 64);
  EXPECT_EQ(sample_images_of("full")->images, 5500);
  EXPECT_FALSE(sample_images_of("other").has_value());
}

}  // namespace
}  // namespace millrace::recipes::image_pairs
