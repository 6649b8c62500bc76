// Pairs of images, which are drawn from their scores or read from a table.
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

// A pair of images, by their numbers.
struct Pair {
  std::int64_t first = 0, second = 0;
  Answer label = Answer::similar;
  friend bool operator==(const Pair&, const Pair&) = default;
};

// Checks whether groups.txt, next to the file `labels`, names the labelled images. Adds a notice with the number of images that
// groups.txt leaves out, because images of one subject may then be on both sides of a fold. Throws DataError if groups.txt names
// no labelled image.
void check_groups(std::span<const Labelled> labelled, const std::filesystem::path& labels, std::vector<std::string>& notices);

// Shuffles the groups of images with `seed` and deals them in turn to `folds` folds; an image without a group forms a separate
// group. So all images of a group are on the same side of each fold. Returns the numbers of each fold's images. Throws DataError
// if a fold would get fewer than two images.
[[nodiscard]] std::vector<std::vector<std::int64_t>> deal_folds(std::span<const Labelled> labels, std::int64_t folds,
                                                                std::uint64_t seed);

struct PairDraw {
  std::int64_t per_class = 0;
  double theta = 0, near_band = 0, near_ratio = 0;
};
// Draws `per_class` pairs for each answer. A pair has two different images of `members`, in random order; draws that do not fit
// are repeated. `scores` covers all images. In the share near_ratio of the draws, the scores of a similar pair must differ by at
// most near_band. Throws DataError with the counts so far if 10 million draws are not enough. Depends only on the arguments.
[[nodiscard]] std::vector<Pair> draw_pairs(std::span<const double> scores, std::span<const std::int64_t> members,
                                           const PairDraw& draw, std::uint64_t seed);
// Returns each pair of two members once, in the order of the members. If `most` > 0, returns at most this many pairs, drawn
// with `seed`.
[[nodiscard]] std::vector<Pair> all_pairs(std::span<const double> scores, std::span<const std::int64_t> members, double theta,
                                          std::int64_t most, std::uint64_t seed);

// An image of a run.
struct ImageFile {
  std::filesystem::path path;
  std::string name;  // the name in labels and tables
  double score = 0;
};
// Writes a CSV with the columns img1,img2,score1,score2,label; scores have six decimals.
void write_pairs(Fs& fs, const std::filesystem::path& file, std::span<const Pair> pairs, std::span<const ImageFile> images);
// Reads a table with the columns of write_pairs(). Adds new names of images to `images`, without a path. Throws DataError, which
// names the row, for a missing cell, a score that is not a number, a score that differs from an earlier score of the same image,
// an unknown label, or a label that contradicts the scores.
[[nodiscard]] std::vector<Pair> read_pairs(const std::filesystem::path& file, double theta, std::vector<ImageFile>& images);

// The data of a run.
struct PairFiles {
  std::vector<ImageFile> images;
  std::vector<Pair> train, validation;
  std::vector<std::string> notices;  // lines for the user at the start of the run
};
// Opens the files that the keys of section recipe name. Throws DataError if an image is missing (with the places where it was
// searched) or is in both training and validation.
// If input.bad_samples is not fail, a missing image is reported, and the loader handles its pairs. DataError is then thrown only
// if training or validation has more pairs with such an image than input.max_bad_fraction allows.
[[nodiscard]] PairFiles open_pairs(const RecipeConfig& recipe, const std::string& data_dir, std::uint64_t seed,
                                   const DataConfig& input = {});

// Writes the tables of all folds, train_fold<k>_<rows>.csv and eval_fold<k>_<rows>.csv, into `out`. Returns a line for each file.
std::vector<std::string> write_pair_files(Fs& fs, std::span<const Labelled> labels, const RecipeConfig& recipe,
                                          const std::filesystem::path& out, std::uint64_t seed);

}  // namespace millrace::recipes::image_pairs
