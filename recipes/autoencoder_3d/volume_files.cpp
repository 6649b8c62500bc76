// Finds the files of a run, checks their headers and splits them.
#include "recipes/autoencoder_3d/volume_source.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iterator>
#include <span>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/json.h"
#include "millrace/base/philox.h"
#include "millrace/data/files/folder.h"
#include "recipes/common/bad_files.h"

namespace millrace::recipes::autoencoder_3d {
namespace {

namespace stdfs = std::filesystem;

constexpr std::uint64_t kSplitKey = 71;  // makes the split's random numbers differ from those of other uses of the seed
// largest difference of two voxel sizes that count as equal, as a share of the size; not 0, because headers hold rounded f32
// numbers
constexpr double kSameSpacing = 1e-3;

std::int64_t halvings(const RecipeConfig& recipe) {
  return std::int64_t{1} << (std::max<std::size_t>(recipe.channels.size(), 1) - 1);
}

// Opens files. A file that can't be opened is reported and stays in the list, where the loader's policy for bad samples applies
// to it.
std::vector<VolumeFile> opened(const std::vector<stdfs::path>& paths, const DataConfig& input,
                               std::vector<std::string>& notices) {
  std::vector<VolumeFile> files;
  std::vector<Problem> problems;
  for (const stdfs::path& path : paths) {
    try {
      files.push_back(open_volume_file(path));
    } catch (const DataError& error) {
      if (!passes_bad(input)) throw;
      problems.push_back(error.message());
      files.push_back({.path = path, .unusable = error.message()});
    }
  }
  if (problems.empty()) return files;
  const auto all = std::ssize(files);
  const auto usable = std::ranges::find_if(files, [](const VolumeFile& file) { return !file.unusable; });
  if (usable == files.end()) throw DataError(problems.front());
  refuse_too_many(std::ssize(problems), all, "volumes", problems.back(), input);
  notices.push_back(notice_of_bad(problems, all, "volumes", input));
  const VolumeFile like = *usable;
  for (VolumeFile& file : files) {
    if (!file.unusable) continue;
    const VolumeFile bad = std::exchange(file, like);
    file.path = bad.path;
    file.unusable = bad.unusable;
  }
  return files;
}

std::vector<VolumeFile> judged(const stdfs::path& folder, const DataConfig& input, std::vector<std::string>& notices) {
  const std::vector<std::string> endings(kVolumeEndings.begin(), kVolumeEndings.end());
  std::vector<stdfs::path> files;
  try {
    files = data::files_in(folder, endings, &notices);
  } catch (const DataError& error) {
    if (error.message().where != folder.string()) throw;
    throw DataError({.what = error.message().what,
                     .where = error.message().where,
                     .next = "name a folder of volumes with --data, or make sample data: millrace make-data autoencoder_3d"});
  }
  return opened(files, input, notices);
}

// Moves the share `fraction` of the files from training to validation. The files are drawn with the seed.
void split_off(std::vector<VolumeFile>& train, std::vector<VolumeFile>& validation, double fraction, std::uint64_t seed) {
  const std::size_t count = train.size();
  if (fraction <= 0 || count < 2) return;
  Philox draws(make_key(seed, kSplitKey));
  for (std::size_t i = count; i > 1; --i) std::swap(train[i - 1], train[draws.below(i)]);
  const auto wanted = static_cast<std::size_t>(std::llround(fraction * static_cast<double>(count)));
  const auto first = static_cast<std::ptrdiff_t>(count - std::clamp<std::size_t>(wanted, 1, count - 1));
  validation.assign(std::make_move_iterator(train.begin() + first), std::make_move_iterator(train.end()));
  train.erase(train.begin() + first, train.end());
  const auto by_path = [](const VolumeFile& a, const VolumeFile& b) { return a.path < b.path; };
  std::sort(train.begin(), train.end(), by_path);
  std::sort(validation.begin(), validation.end(), by_path);
}

bool is_smaller(const Shape& shape, const Shape& than) { return shape[0] < than[0] || shape[1] < than[1] || shape[2] < than[2]; }

void check_crops(const VolumeFiles& files, const RecipeConfig& recipe) {
  const std::int64_t least = halvings(recipe);
  for (const VolumeFile& file : files.train) {
    if (recipe.pad_small || !is_smaller(file.shape, recipe.patch_size)) continue;
    throw DataError({.what = "the volume is " + to_text(file.shape) + ", but the crop is " + to_text(recipe.patch_size),
                     .where = file.path.string(),
                     .next = "make recipe.patch_size smaller, or set recipe.pad_small=true"});
  }
  for (const VolumeFile& file : files.validation) {
    if (!is_smaller(file.shape, {least, least, least})) continue;
    throw DataError({.what = "the volume is " + to_text(file.shape) + ", but the smallest crop that the network can halve is " +
                             std::to_string(least) + " along each axis",
                     .where = file.path.string(),
                     .next = "remove the file, or use fewer levels in recipe.channels"});
  }
}

// Collects files of a kind and makes one notice about all of them: "12 files …, the first: "a.npz"".
class Tally {
 public:
  void add(const VolumeFile& file) {
    if (count_++ == 0) first_ = file.path.filename().string();
  }
  void add_notices(std::vector<std::string>& notices, const std::string& what) const {
    if (count_ == 0) return;
    notices.push_back(std::to_string(count_) + (count_ == 1 ? " file " : " files ") + what +
                      (count_ == 1 ? ": " : ", the first: ") + quoted(first_));
  }

 private:
  std::size_t count_ = 0;
  std::string first_;
};

std::string spacing_text(const std::array<double, 3>& spacing) {
  Json sizes = Json::array();
  for (const double size : spacing) sizes.push_back(std::round(size * 1e3) / 1e3);
  return sizes.dump();
}

void note_spacing(const std::vector<const VolumeFile*>& files, const RecipeConfig& recipe, std::vector<std::string>& notices) {
  if (recipe.spacing.size() != 3) return;
  Tally tally;
  std::array<double, 3> first{};
  for (const VolumeFile* file : files) {
    bool differs = false;
    for (std::size_t axis = 0; axis < 3; ++axis)
      differs |=
          file->spacing[axis] > 0 && std::abs(file->spacing[axis] - recipe.spacing[axis]) > kSameSpacing * recipe.spacing[axis];
    if (!differs) continue;
    if (first[0] == 0) first = file->spacing;
    tally.add(*file);
  }
  tally.add_notices(notices,
                    "with voxels of another size than recipe.spacing (" + spacing_text(first) + " mm; nothing is resampled)");
}

// The different values of a member, each with the number of files that have it, the most frequent value first.
std::vector<std::pair<std::string, std::int64_t>> counted(const std::vector<const VolumeFile*>& files,
                                                          std::string VolumeFile::*member) {
  std::vector<std::pair<std::string, std::int64_t>> counts;
  for (const VolumeFile* file : files) {
    const auto found = std::ranges::find(counts, file->*member, &std::pair<std::string, std::int64_t>::first);
    if (found == counts.end()) {
      counts.emplace_back(file->*member, 1);
    } else {
      ++found->second;
    }
  }
  std::ranges::stable_sort(counts, std::greater(), &std::pair<std::string, std::int64_t>::second);
  return counts;
}

std::string read_as_of(const std::vector<const VolumeFile*>& files) {
  constexpr std::size_t kNamed = 3;
  const auto counts = counted(files, &VolumeFile::read_as);
  if (counts.size() == 1) return counts[0].first;
  std::string text = joined(std::span(counts).first(std::min(kNamed, counts.size())), "; ", [](const auto& each) {
    return std::to_string(each.second) + (each.second == 1 ? " file " : " files ") + each.first;
  });
  return counts.size() > kNamed ? text + "; and " + std::to_string(counts.size() - kNamed) + " other forms" : text;
}

// Reports files with different orientations, because the left side in one file is then the right side in another.
void note_orientation(const std::vector<const VolumeFile*>& files, std::vector<std::string>& notices) {
  std::vector<const VolumeFile*> oriented;
  std::ranges::copy_if(files, std::back_inserter(oriented), [](const VolumeFile* file) { return !file->orientation.empty(); });
  const auto counts = counted(oriented, &VolumeFile::orientation);
  if (counts.size() < 2) return;
  Tally other;
  for (const VolumeFile* file : oriented) {
    if (file->orientation != counts[0].first) other.add(*file);
  }
  other.add_notices(notices, "with axes in another orientation (" + counts[1].first + ") than most (" + counts[0].first +
                                 "; nothing is rotated)");
}

void add_notices(VolumeFiles& files, const RecipeConfig& recipe) {
  std::vector<const VolumeFile*> all;
  for (const auto* list : {&files.train, &files.validation}) {
    for (const VolumeFile& file : *list) all.push_back(&file);
  }
  files.read_as = read_as_of(all);
  note_orientation(all, files.notices);
  Tally alone;
  for (const VolumeFile* file : all) {
    if (file->volumes == 1) alone.add(*file);
  }
  alone.add_notices(files.notices, "with one volume, which serves as image and as label");
  Tally longer;
  for (const VolumeFile* file : all) {
    if (file->series > file->volumes) longer.add(*file);
  }
  longer.add_notices(
      files.notices,
      "with a series of more than two volumes: the first is the image, the second the label, all others are not used");
  note_spacing(all, recipe, files.notices);
  Tally small;
  for (const VolumeFile& file : files.train) {
    if (is_smaller(file.shape, recipe.patch_size)) small.add(file);
  }
  small.add_notices(files.notices, "smaller than the crop " + to_text(recipe.patch_size) + ", padded with zeros");
  if (files.validation.empty() && recipe.val_fraction > 0)
    files.notices.emplace_back("there is only one file, so the run has no validation: put another file into recipe.val_dir");
}

}  // namespace

Shape validation_size(const std::vector<VolumeFile>& validation, const RecipeConfig& recipe) {
  if (validation.empty()) return {};
  const std::int64_t step = halvings(recipe);
  Shape size(3);
  for (std::size_t axis = 0; axis < 3; ++axis) {
    size[axis] = 4 * ((3 * recipe.patch_size[axis] + 7) / 8);  // equals 4 * ceil(1.5 * patch_size / 4)
    for (const VolumeFile& file : validation) size[axis] = std::min(size[axis], file.shape[axis]);
    size[axis] = std::max(size[axis] / step * step, step);
  }
  return size;
}

VolumeFiles open_volumes(const RecipeConfig& recipe, const stdfs::path& folder, std::uint64_t seed, const DataConfig& input) {
  MR_CHECK(recipe.patch_size.size() == 3, "a crop has three axes");
  const auto within = [&](const char* name) {
    std::error_code ignored;
    return !folder.empty() && stdfs::is_directory(folder / name, ignored) ? folder / name : stdfs::path();
  };
  VolumeFiles files;
  const stdfs::path beside = within("train");
  files.train = judged(!recipe.train_dir.empty() ? stdfs::path(recipe.train_dir)
                       : !beside.empty()         ? beside
                                                 : folder,
                       input, files.notices);
  const stdfs::path held_out = !recipe.val_dir.empty() ? stdfs::path(recipe.val_dir) : within("val");
  if (held_out.empty()) {
    split_off(files.train, files.validation, recipe.val_fraction, seed);
  } else {
    files.validation = judged(held_out, input, files.notices);
  }
  check_crops(files, recipe);
  add_notices(files, recipe);
  return files;
}

}  // namespace millrace::recipes::autoencoder_3d
