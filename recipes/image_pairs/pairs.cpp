#include "recipes/image_pairs/pairs.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/philox.h"
#include "millrace/base/text_encoding.h"
#include "millrace/format/csv.h"
#include "recipes/common/bad_files.h"

namespace millrace::recipes::image_pairs {
namespace {

namespace stdfs = std::filesystem;

// These keys make the random numbers of folds, of pairs and of samples differ.
constexpr std::uint64_t kFolds = 72, kDraw = 73, kSample = 74;
constexpr std::uint64_t kSeedsOfAFold = 100;
const std::vector<std::string> kColumns = {"img1", "img2", "score1", "score2", "label"};

// The score with six decimals, as %.6f prints it.
std::string decimals(double score) {
  std::array<char, 400> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), score, std::chars_format::fixed, 6);
  MR_CHECK(error == std::errc(), "a score has at most 309 digits");
  return {text.data(), end};
}

class PairReader {
 public:
  PairReader(const stdfs::path& file, double theta, std::vector<ImageFile>& images)
      : file_(file), theta_(theta), images_(images) {
    for (std::size_t i = 0; i < images.size(); ++i) numbers_.emplace(images[i].name, static_cast<std::int64_t>(i));
  }

  std::vector<Pair> read() {
    const std::string bytes = Fs::real().read_file(file_);
    if (const std::optional<NoText> other = problem_of_text(bytes, file_))
      throw DataError({"the table " + other->is, file_.string(), other->next});
    const std::string_view text = format::without_mark(bytes);
    const char separator = format::csv_separator(text);
    has_decimal_commas_ = separator != ',';
    format::CsvReader reader(text, separator);
    std::vector<std::string> row;
    if (reader.next(row)) find_columns(row);
    if (places_.empty()) {
      throw DataError(
          {"the table does not begin with the columns " + joined(kColumns, ",") +
               (row.empty() ? "" : ", but with " + joined(row, ",", [](const std::string& cell) { return quoted(cell); })),
           file_.string(), "write them as its first line"});
    }
    std::vector<Pair> pairs;
    for (std::int64_t number = 1; reader.next(row); ++number) {
      row_ = number;
      if (row.size() == 1 && row[0].empty()) continue;
      pairs.push_back(pair_of(row));
    }
    if (pairs.empty()) throw DataError({"the table has no pairs", file_.string(), "write a row for each pair"});
    return pairs;
  }

 private:
  // Finds the five columns by their names. Tables of other programs may have a column of numbers before these columns, or more
  // columns after them.
  void find_columns(const std::vector<std::string>& names) {
    std::vector<std::size_t> places;
    for (const std::string& column : kColumns) {
      const auto found = std::ranges::find(names, column);
      if (std::ranges::count(names, column) == 1) places.push_back(static_cast<std::size_t>(found - names.begin()));
    }
    if (places.size() == kColumns.size()) places_ = std::move(places);
    width_ = names.size();
  }

  [[noreturn]] void refuse(const std::string& what, const std::string& next) const {
    throw DataError({"row " + std::to_string(row_) + ": " + what, file_.string(), next});
  }

  double score_in(const std::string& cell) const {
    const std::optional<double> score = format::csv_value(cell, has_decimal_commas_);
    if (!score || !std::isfinite(*score))
      refuse("the score " + quoted(cell) + " is not a finite number", "write a number such as -12.500000");
    return *score;
  }

  std::int64_t image_of(const std::string& name, double score) {
    const auto [found, is_new] = numbers_.emplace(name, static_cast<std::int64_t>(images_.size()));
    if (is_new) {
      images_.push_back({.path = {}, .name = name, .score = score});
    } else if (const double known = images_[static_cast<std::size_t>(found->second)].score; std::abs(known - score) > 1e-6) {
      refuse(quoted(name) + " has score " + decimals(score) + ", but " + decimals(known) + " in an earlier row",
             "give an image one score");
    }
    return found->second;
  }

  Pair pair_of(const std::vector<std::string>& row) {
    if (row.size() != width_)
      refuse("it has " + std::to_string(row.size()) + " cells, not " + std::to_string(width_), "write " + joined(kColumns, ","));
    const auto cell = [&](std::size_t column) -> const std::string& { return row[places_[column]]; };
    const double first = score_in(cell(2)), second = score_in(cell(3));
    const auto label = answer_named(cell(4));
    if (!label) refuse("the label is " + quoted(cell(4)), "write First, Second or Similar");
    if (const Answer due = answer_of(first, second, theta_); due != *label) {
      refuse("scores " + significant(first, 6) + " and " + significant(second, 6) + " give " + name_of(due) +
                 ", but the file says " + cell(4),
             "correct the label, or set recipe.theta (" + significant(theta_, 6) + ") to its value when the file was made");
    }
    return {image_of(cell(0), first), image_of(cell(1), second), *label};
  }

  const stdfs::path& file_;
  double theta_;
  std::vector<ImageFile>& images_;
  std::unordered_map<std::string, std::int64_t> numbers_;
  std::vector<std::size_t> places_;  // the column of each name in kColumns
  std::size_t width_ = 0;
  bool has_decimal_commas_ = false;
  std::int64_t row_ = 0;
};

// The places where images are searched for.
class Places {
 public:
  Places(const RecipeConfig& recipe, const std::string& data_dir) : prefixes_(recipe.strip_prefixes) {
    for (const std::string& root : recipe.data_roots) roots_.emplace_back(root);
    if (roots_.empty() && !data_dir.empty()) roots_ = {stdfs::path(data_dir) / "images", data_dir};
  }

  stdfs::path find(const std::string& name) const {
    std::vector<stdfs::path> tried = {name};
    std::string rest = name;
    for (const std::string& prefix : prefixes_) {
      if (!prefix.empty() && rest.starts_with(prefix)) {
        rest = rest.substr(prefix.size());
        break;
      }
    }
    // Removes leading slashes, so that an absolute path that does not exist is searched for below the roots.
    while (rest.starts_with("/")) rest.erase(0, 1);
    for (const stdfs::path& root : roots_) tried.push_back(root / rest);
    for (const stdfs::path& path : tried) {
      std::error_code none;
      if (stdfs::is_regular_file(path, none)) return path;
    }
    throw DataError(
        {"image " + quoted(name) + " does not exist", joined(tried, ", ", [](const stdfs::path& path) { return path.string(); }),
         "set recipe.data_roots to the folders of the images, and recipe.strip_prefixes to the prefixes of their names"});
  }

 private:
  std::vector<stdfs::path> roots_;
  const std::vector<std::string>& prefixes_;
};

// Returns for each image the first image with the same file, because tables may give a file several names. Before the files are
// found, each image counts as the only one of its file.
std::vector<std::int64_t> first_of_file(std::span<const ImageFile> images) {
  std::unordered_map<std::string, std::int64_t> first;
  std::vector<std::int64_t> same;
  for (const ImageFile& image : images) {
    const auto number = std::ssize(same);
    same.push_back(image.path.empty() ? number : first.emplace(image.path.lexically_normal().string(), number).first->second);
  }
  return same;
}

void refuse_leak(const PairFiles& files) {
  const std::vector<std::int64_t> same = first_of_file(files.images);
  const auto file_of = [&same](std::int64_t image) { return same[static_cast<std::size_t>(image)]; };
  std::unordered_set<std::int64_t> trained;
  for (const Pair& pair : files.train) trained.insert({file_of(pair.first), file_of(pair.second)});
  for (const Pair& pair : files.validation) {
    for (const std::int64_t image : {pair.first, pair.second}) {
      if (!trained.contains(file_of(image))) continue;
      const std::string& name = files.images[static_cast<std::size_t>(image)].name;
      const std::string& other = files.images[static_cast<std::size_t>(file_of(image))].name;
      throw DataError({"image " + quoted(name) + " is in pairs to train on and in pairs to validate with" +
                           (other == name ? "" : ": its file is also that of " + quoted(other)),
                       "recipe.train_pairs, recipe.val_pairs",
                       "put each image on one side only, because a network may remember its training images"});
    }
  }
}

std::vector<double> scores_of(std::span<const ImageFile> images) {
  std::vector<double> scores(images.size());
  std::ranges::transform(images, scores.begin(), &ImageFile::score);
  return scores;
}

std::vector<std::int64_t> all_but(const std::vector<std::vector<std::int64_t>>& folds, std::size_t left_out) {
  std::vector<std::int64_t> members;
  for (std::size_t i = 0; i < folds.size(); ++i) {
    if (i != left_out) members.insert(members.end(), folds[i].begin(), folds[i].end());
  }
  return members;
}

PairDraw draw_of(const RecipeConfig& recipe) {
  return {.per_class = recipe.per_class, .theta = recipe.theta, .near_band = recipe.near_band, .near_ratio = recipe.near_ratio};
}

void draw_from_labels(PairFiles& files, const RecipeConfig& recipe, const stdfs::path& labels, std::uint64_t seed) {
  const std::vector<Labelled> labelled = read_labels(labels);
  check_groups(labelled, labels, files.notices);
  for (const Labelled& label : labelled) files.images.push_back({.path = {}, .name = label.name, .score = label.score});
  const auto images = std::ssize(files.images);
  const std::vector<double> scores = scores_of(files.images);
  const auto folds = deal_folds(labelled, recipe.folds, seed);
  const auto fold = static_cast<std::size_t>(recipe.fold - 1);
  files.train =
      draw_pairs(scores, all_but(folds, fold), draw_of(recipe), seed + kSeedsOfAFold * static_cast<std::uint64_t>(recipe.fold));
  files.validation = all_pairs(scores, folds[fold], recipe.theta, recipe.val_samples, seed);
  files.notices.push_back("fold " + std::to_string(recipe.fold) + " of " + std::to_string(recipe.folds) +
                          " validates: " + with_commas(std::ssize(folds[fold])) + " of " + with_commas(images) + " images, " +
                          with_commas(std::ssize(files.validation)) + " pairs; " + with_commas(std::ssize(files.train)) +
                          " pairs to train on");
}

}  // namespace

void check_groups(std::span<const Labelled> labelled, const stdfs::path& labels, std::vector<std::string>& notices) {
  const stdfs::path file = labels.parent_path() / "groups.txt";
  std::error_code none;
  if (!stdfs::exists(file, none)) return;
  const auto alone = std::ranges::count_if(labelled, [](const Labelled& label) { return label.group.empty(); });
  if (alone == std::ssize(labelled))
    throw DataError({"the file of groups names none of the " + with_commas(alone) + " labelled images", file.string(),
                     "write the image names as in the labels, or remove the file"});
  if (alone > 0)
    notices.push_back("groups.txt names no group for " + with_commas(alone) + " of " + with_commas(std::ssize(labelled)) +
                      " images: each of them is a group of its own");
}

std::vector<std::vector<std::int64_t>> deal_folds(std::span<const Labelled> labels, std::int64_t folds, std::uint64_t seed) {
  std::vector<std::vector<std::int64_t>> groups;
  std::unordered_map<std::string_view, std::size_t> numbers;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const std::string& group = labels[i].group;
    const std::size_t number = group.empty() ? groups.size() : numbers.try_emplace(group, groups.size()).first->second;
    if (number == groups.size()) groups.emplace_back();
    groups[number].push_back(static_cast<std::int64_t>(i));
  }
  Philox random(make_key(seed, kFolds));
  for (std::size_t i = groups.size(); i > 1; --i) std::swap(groups[i - 1], groups[random.below(i)]);
  std::vector<std::vector<std::int64_t>> dealt(static_cast<std::size_t>(folds));
  for (std::size_t i = 0; i < groups.size(); ++i) std::ranges::copy(groups[i], std::back_inserter(dealt[i % dealt.size()]));
  if (std::ranges::all_of(dealt, [](const auto& fold) { return fold.size() > 1; })) return dealt;
  throw DataError({std::to_string(labels.size()) + " images in " + std::to_string(groups.size()) + " groups are too few for " +
                       std::to_string(folds) + " folds of two images each",
                   "the labels (groups.txt in the same folder says which images belong together)",
                   "label more images, or set recipe.folds"});
}

std::vector<Pair> draw_pairs(std::span<const double> scores, std::span<const std::int64_t> members, const PairDraw& draw,
                             std::uint64_t seed) {
  constexpr std::int64_t kMostDraws = 10'000'000;
  std::vector<Pair> pairs;
  pairs.reserve(static_cast<std::size_t>(3 * draw.per_class));
  std::array<std::int64_t, 3> reached{};
  Philox random(make_key(seed, kDraw));
  const auto full = [&](std::int64_t count) { return count >= draw.per_class; };
  for (std::int64_t i = 0; i < kMostDraws && !std::ranges::all_of(reached, full) && members.size() > 1; ++i) {
    const std::int64_t first = members[random.below(members.size())], second = members[random.below(members.size())];
    if (first == second) continue;
    const double a = scores[static_cast<std::size_t>(first)], b = scores[static_cast<std::size_t>(second)];
    const Answer label = answer_of(a, b, draw.theta);
    std::int64_t& count = reached.at(static_cast<std::size_t>(label));
    if (full(count)) continue;
    if (label == Answer::similar && random.uniform() < draw.near_ratio && std::abs(a - b) > draw.near_band) continue;
    ++count;
    pairs.push_back({first, second, label});
  }
  if (std::ranges::all_of(reached, full)) return pairs;
  throw DataError({"of " + with_commas(kMostDraws) + " drawn pairs of " + with_commas(std::ssize(members)) + " images " +
                       with_commas(reached[0]) + " are First, " + with_commas(reached[1]) + " Second and " +
                       with_commas(reached[2]) + " Similar, but " + with_commas(draw.per_class) + " of each are needed",
                   "recipe.per_class, recipe.theta",
                   "label more images with different and with similar scores, or change recipe.theta"});
}

std::vector<Pair> all_pairs(std::span<const double> scores, std::span<const std::int64_t> members, double theta,
                            std::int64_t most, std::uint64_t seed) {
  const std::size_t n = members.size(), all = n * (n - 1) / 2;
  std::vector<bool> taken;
  if (most > 0 && static_cast<std::size_t>(most) < all) {  // Floyd's method for a draw without replacement
    taken.resize(all);
    Philox random(make_key(seed, kSample));
    for (std::size_t i = all - static_cast<std::size_t>(most); i < all; ++i) {
      const std::size_t drawn = random.below(i + 1);
      taken[taken[drawn] ? i : drawn] = true;
    }
  }
  std::vector<Pair> pairs;
  std::size_t number = 0;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = i + 1; j < n; ++j, ++number) {
      if (!taken.empty() && !taken[number]) continue;
      const double a = scores[static_cast<std::size_t>(members[i])], b = scores[static_cast<std::size_t>(members[j])];
      pairs.push_back({members[i], members[j], answer_of(a, b, theta)});
    }
  }
  return pairs;
}

void write_pairs(Fs& fs, const stdfs::path& file, std::span<const Pair> pairs, std::span<const ImageFile> images) {
  write_atomically(fs, file, [&](WritableFile& out) {
    std::string text = format::csv_line(kColumns) + "\n";
    for (const Pair& pair : pairs) {
      const ImageFile& first = images[static_cast<std::size_t>(pair.first)];
      const ImageFile& second = images[static_cast<std::size_t>(pair.second)];
      const std::vector<std::string> cells = {first.name, second.name, decimals(first.score), decimals(second.score),
                                              name_of(pair.label)};
      text += format::csv_line(cells) + "\n";
      constexpr std::size_t kBlock = 1 << 20;
      if (text.size() < kBlock) continue;
      out.write(std::as_bytes(std::span(text)));
      text.clear();
    }
    out.write(std::as_bytes(std::span(text)));
  });
}

std::vector<Pair> read_pairs(const stdfs::path& file, double theta, std::vector<ImageFile>& images) {
  return PairReader(file, theta, images).read();
}

namespace {

void find_images(PairFiles& files, const Places& places, const DataConfig& input) {
  std::vector<Problem> problems;
  std::unordered_set<std::int64_t> lost;
  for (std::size_t i = 0; i < files.images.size(); ++i) {
    ImageFile& image = files.images[i];
    try {
      image.path = places.find(image.name);
    } catch (const DataError& error) {
      if (!passes_bad(input)) throw;
      image.path = image.name;  // a path that can't be read, so that data.bad_samples applies to the image
      problems.push_back(error.message());
      lost.insert(static_cast<std::int64_t>(i));
    }
  }
  if (problems.empty()) return;
  for (const auto& [pairs, what] :
       {std::pair{&files.train, "pairs to train on"}, std::pair{&files.validation, "pairs to validate with"}}) {
    const auto bad =
        std::ranges::count_if(*pairs, [&](const Pair& pair) { return lost.contains(pair.first) || lost.contains(pair.second); });
    if (bad > 0) refuse_too_many(bad, std::ssize(*pairs), what, problems.back(), input);
  }
  files.notices.push_back(notice_of_bad(problems, std::ssize(files.images), "images", input));
}

}  // namespace

PairFiles open_pairs(const RecipeConfig& recipe, const std::string& data_dir, std::uint64_t seed, const DataConfig& input) {
  PairFiles files;
  if (recipe.train_pairs.empty()) {
    draw_from_labels(files, recipe, recipe.labels.empty() ? stdfs::path(data_dir) / "labels.txt" : stdfs::path(recipe.labels),
                     seed);
  } else {
    files.train = read_pairs(recipe.train_pairs, recipe.theta, files.images);
    files.notices.push_back(with_commas(std::ssize(files.train)) + " pairs to train on from " + recipe.train_pairs);
    if (recipe.val_pairs.empty()) files.notices.emplace_back("no validation: recipe.val_pairs names no table");
  }
  if (!recipe.val_pairs.empty()) {
    files.validation = read_pairs(recipe.val_pairs, recipe.theta, files.images);
    files.notices.push_back(with_commas(std::ssize(files.validation)) + " pairs to validate with from " + recipe.val_pairs);
  }
  refuse_leak(files);
  find_images(files, Places(recipe, data_dir), input);
  refuse_leak(files);  // checked again, because two names may belong to the same file
  return files;
}

std::vector<std::string> write_pair_files(Fs& fs, std::span<const Labelled> labels, const RecipeConfig& recipe,
                                          const stdfs::path& out, std::uint64_t seed) {
  std::vector<ImageFile> images;
  for (const Labelled& label : labels) images.push_back({.path = {}, .name = label.name, .score = label.score});
  const std::vector<double> scores = scores_of(images);
  const auto folds = deal_folds(labels, recipe.folds, seed);
  std::vector<std::string> notices;
  const auto write = [&](const std::string& name, const std::vector<Pair>& pairs) {
    const stdfs::path file = out / (name + "_" + std::to_string(pairs.size()) + ".csv");
    write_pairs(fs, file, pairs, images);
    notices.push_back(file.string() + "  " + with_commas(std::ssize(pairs)) + " pairs");
  };
  for (std::size_t k = 0; k < folds.size(); ++k) {
    write("train_fold" + std::to_string(k + 1),
          draw_pairs(scores, all_but(folds, k), draw_of(recipe), seed + kSeedsOfAFold * (k + 1)));
    write("eval_fold" + std::to_string(k + 1), all_pairs(scores, folds[k], recipe.theta, 0, seed));
  }
  return notices;
}

}  // namespace millrace::recipes::image_pairs
