// Pairs of images: drawn from their scores, or read from a table.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "millrace/base/fs.h"
#include "millrace/train/recipe/config.h"
#include "recipes/image_pairs/config.h"
#include "recipes/image_pairs/labels.h"

namespace millrace::recipes::image_pairs {

// Refers to images by number.
struct Pair {
  std::int64_t first = 0, second = 0;
  Answer label = Answer::similar;
  friend bool operator==(const Pair&, const Pair&) = default;
};

// Shuffles the groups of images (an image without a group is its own) with `seed` and deals them in turn into `folds` folds: all
// images of a group are on one side of each fold. Returns the numbers of the images. DataError if a fold gets fewer than two
// images.
[[nodiscard]] std::vector<std::vector<std::int64_t>> deal_folds(std::span<const Labelled> labels, std::int64_t folds,
                                                                std::uint64_t seed);

struct PairDraw {
  std::int64_t per_class = 0;
  double theta = 0, near_band = 0, near_ratio = 0;
};
// Draws `per_class` pairs of each answer, ordered pairs of different `members`, by rejection; `scores` covers all images. In a
// share near_ratio of the draws a similar pair must lie within near_band. DataError with the counts so far if 10 million draws
// are not enough. A function of the seed.
[[nodiscard]] std::vector<Pair> draw_pairs(std::span<const double> scores, std::span<const std::int64_t> members,
                                           const PairDraw& draw, std::uint64_t seed);
// Each pair of two members once; if `most` > 0, at most this many of them, drawn with `seed`, in the original order.
[[nodiscard]] std::vector<Pair> all_pairs(std::span<const double> scores, std::span<const std::int64_t> members, double theta,
                                          std::int64_t most, std::uint64_t seed);

// An image that pairs refer to.
struct ImageFile {
  std::filesystem::path path;
  std::string name;  // as in labels and tables
  double score = 0;
};
// A CSV img1,img2,score1,score2,label; scores with six decimals.
void write_pairs(Fs& fs, const std::filesystem::path& file, std::span<const Pair> pairs, std::span<const ImageFile> images);
// Reads such a table; new image names are added to `images`, without a path. DataError with the row: a missing cell, a score that
// is not a number or differs from an earlier one, an unknown label, a label that the scores contradict.
[[nodiscard]] std::vector<Pair> read_pairs(const std::filesystem::path& file, double theta, std::vector<ImageFile>& images);

// The data of a run.
struct PairFiles {
  std::vector<ImageFile> images;
  std::vector<Pair> train, validation;
  std::vector<std::string> notices;  // for the run's start
};
// Opens the files named by the keys of section recipe. DataError: a missing image (with the places tried), an image on both
// sides.
// Unless input.bad_samples is fail, an image that is not there is told, and its pairs are left to the loader; DataError if more
// pairs of a side have such an image than input.max_bad_fraction allows.
[[nodiscard]] PairFiles open_pairs(const RecipeConfig& recipe, const std::string& data_dir, std::uint64_t seed,
                                   const DataConfig& input = {});

// Writes the tables of all folds, train_fold<k>_<rows>.csv and eval_fold<k>_<rows>.csv, into `out`. Returns one line per file.
std::vector<std::string> write_pair_files(Fs& fs, std::span<const Labelled> labels, const RecipeConfig& recipe,
                                          const std::filesystem::path& out, std::uint64_t seed);

}  // namespace millrace::recipes::image_pairs
