// Pairs of images: drawn from their scores, or read from a table.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "millrace/base/fs.h"
#include "recipes/image_pairs/config.h"
#include "recipes/image_pairs/labels.h"

namespace millrace::recipes::image_pairs {

// By the numbers of their images.
struct Pair {
  std::int64_t first = 0, second = 0;
  Answer label = Answer::similar;
  friend bool operator==(const Pair&, const Pair&) = default;
};

// The numbers of the images, their groups (an image without one is its own) shuffled with `seed` and dealt in turn into so many
// folds: what one group shows lies on one side of each fold. DataError when a fold gets fewer than two images.
[[nodiscard]] std::vector<std::vector<std::int64_t>> deal_folds(std::span<const Labelled> labels, std::int64_t folds,
                                                                std::uint64_t seed);

struct PairDraw {
  std::int64_t per_class = 0;
  double theta = 0, near_band = 0, near_ratio = 0;
};
// `per_class` pairs of each answer, ordered pairs of different `members` by rejection: `scores` of all images. In the part
// near_ratio of its draws a similar pair must lie within near_band. DataError with the counts reached when 10 million draws are
// not enough. A function of the seed.
[[nodiscard]] std::vector<Pair> draw_pairs(std::span<const double> scores, std::span<const std::int64_t> members,
                                           const PairDraw& draw, std::uint64_t seed);
// Each pair of two members once; of them `most`, drawn with `seed`, in the order in which all are (0 = all).
[[nodiscard]] std::vector<Pair> all_pairs(std::span<const double> scores, std::span<const std::int64_t> members, double theta,
                                          std::int64_t most, std::uint64_t seed);

// An image that pairs name.
struct ImageFile {
  std::filesystem::path path;
  std::string name;  // as labels and tables have it
  double score = 0;
};
// A CSV img1,img2,score1,score2,label; scores with six decimals.
void write_pairs(Fs& fs, const std::filesystem::path& file, std::span<const Pair> pairs, std::span<const ImageFile> images);
// Reads one; images that it names first are added to `images`, without a path. DataError with the row: a cell too few, a score
// that is no number or another than before, an unknown label, one that the scores contradict.
[[nodiscard]] std::vector<Pair> read_pairs(const std::filesystem::path& file, double theta, std::vector<ImageFile>& images);

// What a run learns from.
struct PairFiles {
  std::vector<ImageFile> images;
  std::vector<Pair> train, validation;
  std::vector<std::string> told;  // lines for the run's start
};
// As the keys of recipe say. DataError: an image that is not there (with the places tried), one on both sides.
[[nodiscard]] PairFiles open_pairs(const RecipeConfig& recipe, const std::string& data_dir, std::uint64_t seed);

// The tables of all folds: train_fold<k>_<rows>.csv and eval_fold<k>_<rows>.csv in `out`. What was written, a line each.
std::vector<std::string> write_pair_files(Fs& fs, std::span<const Labelled> labels, const RecipeConfig& recipe,
                                          const std::filesystem::path& out, std::uint64_t seed);

}  // namespace millrace::recipes::image_pairs
