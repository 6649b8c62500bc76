#include "recipes/cosmology/sky_files.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/hash.h"
#include "millrace/base/philox.h"
#include "millrace/data/files/folder.h"
#include "millrace/hdf5/remedy.h"
#include "recipes/common/bad_files.h"
#include "recipes/cosmology/sky_axes.h"
#include "recipes/cosmology/sky_problems.h"
#include "recipes/cosmology/unusable_sky.h"

namespace millrace::recipes::cosmology {
namespace {

constexpr std::uint64_t kSplitKey = 21;  // makes the split's random numbers differ from those of other uses of the seed
constexpr double kTrainingShare = 0.9;

std::string file_name_of(const hdf5::File& file) { return file.path().filename().string(); }

SplitPaths split_list(const std::vector<std::filesystem::path>& files, Philox& random, const std::string& what,
                      std::vector<std::string>& notices) {
  SplitPaths split;
  for (const auto& file : files) (random.uniform() < kTrainingShare ? split.train : split.validation).push_back(file);
  for (auto [empty, full, side] :
       {std::tuple{&split.train, &split.validation, "training"}, std::tuple{&split.validation, &split.train, "validation"}}) {
    if (!empty->empty() || full->empty()) continue;
    empty->push_back(full->back());
    if (full->size() > 1) full->pop_back();
    notices.push_back("the random split left no " + what + " file for " + side + ", so " + side + " gets " +
                      empty->back().filename().string() + (full->back() == empty->back() ? ", the only one there is" : ""));
  }
  return split;
}

// The complex cube of a file. Throws DataError with the reason if the file can't be used.
const hdf5::Dataset& cube_of(const hdf5::File& file, const RecipeConfig& recipe) {
  const std::string next = "name the dataset with recipe.vis_dataset; for a uvh5 file, run millrace uvh5";
  const auto sets = file.datasets();
  const auto it = std::find_if(sets.begin(), sets.end(), [&](const auto& set) { return set.name == recipe.vis_dataset; });
  for (const auto& [name, reason, text] : file.unreadable()) {
    if (recipe.vis_dataset != name && !recipe.vis_dataset.starts_with(name + "/")) continue;
    std::string remedy = hdf5::remedy_for(reason, file.path());
    if (remedy.empty()) remedy = "write it again as numbers, all in this file, or name another dataset with recipe.vis_dataset";
    throw DataError(
        {file_name_of(file) + ": dataset " + recipe.vis_dataset + " can't be read: " + reason, file.path().string(), remedy});
  }
  if (it == sets.end()) {
    std::string all;
    for (const auto& set : sets) all += (all.empty() ? "" : ", ") + set.name;
    throw DataError(
        {file_name_of(file) + ": dataset " + recipe.vis_dataset + " is missing (has: " + (all.empty() ? "nothing" : all) + ")",
         file.path().string(), next});
  }
  if (it->dtype != DType::c64 && it->dtype != DType::c128) {
    const std::string type = it->dtype == DType::f64   ? "float64"
                             : it->dtype == DType::f32 ? "float32"
                                                       : std::string(name_of(it->dtype));
    throw DataError({file_name_of(file) + ": " + recipe.vis_dataset + " is " + type + ", expected complex {r,i}",
                     file.path().string(), next});
  }
  if (it->shape.size() != 3) {
    throw DataError(
        {file_name_of(file) + ": " + recipe.vis_dataset + " is " + to_text(it->shape) + ", expected [baselines,frequencies,RA]",
         file.path().string(), next});
  }
  return *it;
}

void check_sizes(const hdf5::File& file, const Shape& shape, const RecipeConfig& recipe, std::vector<Problem>& problems) {
  const std::string where = file.path().string();
  if (shape[2] < recipe.ra_keep) {
    problems.push_back({file_name_of(file) + " has " + std::to_string(shape[2]) + " RA samples, but ra_keep is " +
                            std::to_string(recipe.ra_keep),
                        where,
                        "lower recipe.ra_keep (it must be a multiple of 4*split = " + std::to_string(4 * recipe.split) + ")"});
  }
  for (const auto& [size, what] : {std::pair{shape[0], "baselines"}, std::pair{shape[1], "frequencies"}}) {
    if (size % 4 == 0 || recipe.pad != Padding::none) continue;
    problems.push_back({file_name_of(file) + " has " + std::to_string(size) + " " + what + ", which is not a multiple of 4",
                        where, "set recipe.pad=mirror or circular, or cut the files: the U-Net halves each axis twice"});
  }
  if (recipe.n_fg >= shape[1]) {
    problems.push_back({"n_fg is " + std::to_string(recipe.n_fg) + ", " + file_name_of(file) + " has " +
                            std::to_string(shape[1]) + " frequencies",
                        where, "lower recipe.n_fg"});
  }
}

std::string band_text(const RecipeConfig& recipe) {
  return significant(recipe.band_mhz[0], 6) + " to " + significant(recipe.band_mhz[1], 6) + " MHz";
}

bool holds_uvh5(const std::filesystem::path& folder) {
  std::error_code error;
  const std::filesystem::path looked = folder.empty() ? "." : folder;
  return std::filesystem::is_directory(looked, error) && !data::find_files(looked, {".uvh5"}).files.empty();
}

// The shape that most files have.
Shape usual_shape(const std::vector<std::pair<SkyFile, Shape>>& files) {
  const std::pair<SkyFile, Shape>* usual = nullptr;
  std::ptrdiff_t most = 0;
  for (const auto& file : files) {
    const auto same = std::count_if(files.begin(), files.end(), [&](const auto& other) { return other.second == file.second; });
    if (same <= most) continue;
    most = same;
    usual = &file;
    if (2 * most > static_cast<std::ptrdiff_t>(files.size())) break;
  }
  return usual->second;
}

}  // namespace

std::vector<double> centres_of(const RecipeConfig& recipe, std::int64_t count) {
  std::vector<double> centres(static_cast<std::size_t>(count));
  const double low = recipe.band_mhz[0];
  const double width = (recipe.band_mhz[1] - low) / static_cast<double>(count);
  for (std::int64_t i = 0; i < count; ++i) centres[static_cast<std::size_t>(i)] = low + (static_cast<double>(i) + 0.5) * width;
  return centres;
}

OpenSky open_hdf5(hdf5::OpenOptions options) {
  return [options = std::move(options)](std::span<const std::filesystem::path> paths, const hdf5::File::OnFailure& failed) {
    return hdf5::File::open_all(paths, {}, failed, options);
  };
}

namespace {

struct OpenedSky {
  std::vector<std::pair<SkyFile, Shape>> usable;
  std::vector<Problem> unusable;
};

// Opens files and appends them to `files`. A file that can't be used becomes an unusable_sky() in the list.
OpenedSky open_files(const std::vector<std::filesystem::path>& paths, const RecipeConfig& recipe, const OpenSky& open,
                     std::vector<SkyFile>& files) {
  OpenedSky opened;
  std::vector<std::optional<Problem>> problems(paths.size());
  files = open(paths, [&](std::size_t i, const DataError& error) { problems[i] = error.message(); });
  for (std::size_t i = 0; i < paths.size(); ++i) {
    try {
      if (!problems[i]) opened.usable.emplace_back(files[i], cube_of(*files[i], recipe).shape);
    } catch (const DataError& error) {
      problems[i] = error.message();
    }
    if (!problems[i]) continue;
    files[i] = unusable_sky(paths[i], *problems[i]);
    opened.unusable.push_back(*std::move(problems[i]));
  }
  return opened;
}

// The files of one kind (signal or foreground) for training or for validation.
struct Side {
  std::string name;
  const std::vector<std::filesystem::path>& paths;
  std::vector<SkyFile>& files;
  bool are_samples = true;  // true: each file is a sample, as signal files are; false: a file may be drawn for many samples
  std::vector<Problem> problems = {};
};

// With data.bad_samples=fail, all problems end the run. With other values, problems are reported, and the run ends only if there
// are too many bad samples.
void settle(std::vector<Side>& sides, const DataConfig& input, std::vector<Problem>& problems,
            std::vector<std::string>& notices) {
  for (Side& side : sides) {
    if (!passes_bad(input)) {
      std::ranges::move(side.problems, std::back_inserter(problems));
      continue;
    }
    if (side.problems.empty()) continue;
    const auto bad = std::ssize(side.problems), all = std::ssize(side.files);
    // Foreground files are drawn during the epoch, so the number of bad samples is not known here, unless all files are bad.
    if (side.are_samples || bad == all) refuse_too_many(bad, all, side.name, side.problems.back(), input);
    notices.push_back(notice_of_bad(side.problems, all, side.name, input));
  }
}

// Replaces files whose shape is not `shape` by unusable_sky().
void drop_other_shapes(std::vector<SkyFile>& files, const Shape& shape, const std::string& usual, const std::string& next,
                       const RecipeConfig& recipe, std::vector<Problem>& problems) {
  for (SkyFile& file : files) {
    if (!is_usable(file)) continue;
    const Shape& own = cube_of(*file, recipe).shape;
    if (own == shape) continue;
    problems.push_back(
        {file_name_of(*file) + " " + recipe.vis_dataset + " is " + to_text(own) + ", " + usual + " " + to_text(shape),
         file->path().string(), next});
    file = unusable_sky(file->path(), problems.back());
  }
}

}  // namespace

std::vector<std::filesystem::path> sky_paths(const std::filesystem::path& folder, const std::string& key,
                                             std::vector<std::string>* notices) {
  data::FilesFound found;
  std::error_code error;
  if (std::filesystem::directory_iterator(folder, error); !error) found = data::find_files(folder, {".h5", ".hdf5"});
  if (found.files.empty()) {
    const std::filesystem::path above = folder.parent_path();
    const bool here = holds_uvh5(folder);
    const std::string next = here || holds_uvh5(above)
                                 ? "convert the uvh5 files there into the folders that a run reads: millrace uvh5 " +
                                       (here ? folder : above).string() + " --out sky --signal FOLDER, or --make-signal RMS"
                                 : "set recipe." + key + ", or make some: millrace make-data cosmology";
    const std::string why = error ? ": " + error.message() : found.left_out.empty() ? "" : " (" + found.left_out + ")";
    throw DataError({key + " holds no .h5 file", folder.string() + why, next});
  }
  if (notices != nullptr && !found.left_out.empty()) notices->push_back(std::move(found.left_out));
  return std::move(found.files);
}

SplitOfSky split_sky(const std::vector<std::filesystem::path>& signal, const std::vector<std::filesystem::path>& foreground,
                     std::uint64_t seed, std::int64_t num_train) {
  SplitOfSky split;
  Philox random(make_key(seed, kSplitKey));
  split.signal = split_list(signal, random, "signal", split.notices);
  split.foreground = split_list(foreground, random, "foreground", split.notices);
  if (num_train >= 0 && static_cast<std::size_t>(num_train) < split.signal.train.size())
    split.signal.train.resize(static_cast<std::size_t>(num_train));
  return split;
}

std::vector<Problem> problems_of(const RecipeConfig& recipe) {
  std::vector<Problem> problems;
  if (recipe.pad != Padding::none) {
    if (recipe.ra_keep % recipe.split != 0)
      problems.push_back(
          {"ra_keep " + std::to_string(recipe.ra_keep) + " is not a multiple of split = " + std::to_string(recipe.split),
           "recipe.ra_keep, recipe.split",
           "choose a multiple of recipe.split, because all chunks must have one length; recipe.pad only pads them to a multiple "
           "of 4"});
  } else if (recipe.ra_keep % 4 != 0 || recipe.ra_keep / 4 % recipe.split != 0) {  // written as two conditions, because 4*split
                                                                                   // may not fit into 64 bits
    const bool fits = recipe.split <= std::numeric_limits<std::int64_t>::max() / 4;
    problems.push_back({"ra_keep " + std::to_string(recipe.ra_keep) + " is not a multiple of 4*split = " +
                            (fits ? std::to_string(4 * recipe.split) : "4*" + std::to_string(recipe.split)),
                        "recipe.ra_keep, recipe.split", "each chunk is halved twice: choose a multiple, or set recipe.pad"});
  }
  if (recipe.num_train == 0)
    problems.push_back({"num_train is 0: there is nothing to train on", "recipe.num_train", "-1 takes all files"});
  if (!(recipe.band_mhz[0] < recipe.band_mhz[1]))
    problems.push_back({"the band ends before it begins", "recipe.band_mhz", "write its lower edge first"});
  return problems;
}

Sky open_sky(const RecipeConfig& recipe, const std::filesystem::path& signal_dir, const std::filesystem::path& foreground_dir,
             std::uint64_t seed, const OpenSky& open, const DataConfig& input) {
  std::vector<Problem> problems;
  Sky sky;
  std::vector<std::filesystem::path> signal;
  std::vector<std::filesystem::path> foreground;
  collect(problems, [&] { signal = sky_paths(signal_dir, "signal_dir", &sky.notices); });
  collect(problems, [&] { foreground = sky_paths(foreground_dir, "foreground_dir", &sky.notices); });
  refuse_all(problems);
  SplitOfSky split = split_sky(signal, foreground, seed, recipe.num_train);
  std::ranges::move(split.notices, std::back_inserter(sky.notices));
  std::vector<std::pair<SkyFile, Shape>> all;
  std::vector<Side> sides = {
      {"signal files of the training", split.signal.train, sky.train.signal},
      {"foreground files of the training", split.foreground.train, sky.train.foreground, false},
      {"signal files of the validation", split.signal.validation, sky.validation.signal},
      {"foreground files of the validation", split.foreground.validation, sky.validation.foreground, false}};
  Sha256 digest;
  for (Side& side : sides) {
    OpenedSky opened = open_files(side.paths, recipe, open, side.files);
    for (const auto& [file, shape] : opened.usable)
      digest.update(file_name_of(*file) + to_text(shape) + std::to_string(file->size()) + "\n");
    digest.update("|");
    std::ranges::move(opened.usable, std::back_inserter(all));
    side.problems = std::move(opened.unusable);
  }
  if (all.empty()) {
    for (Side& side : sides) std::ranges::move(side.problems, std::back_inserter(problems));
    refuse_all(problems);
  }
  sky.shape = usual_shape(all);
  const SkyFile first = std::ranges::find(all, sky.shape, &std::pair<SkyFile, Shape>::second)->first;
  for (Side& side : sides)
    drop_other_shapes(side.files, sky.shape, file_name_of(*first) + " has", "remove or regrid the file", recipe, side.problems);
  if (passes_bad(input)) std::erase_if(all, [&](const auto& file) { return file.second != sky.shape; });
  settle(sides, input, problems, sky.notices);
  check_sizes(*first, sky.shape, recipe, problems);
  // the file with the usual shape is first, because all other files are compared with it
  std::vector<NamedSky> named = {{first.get(), sky.shape}};
  for (const auto& [file, shape] : all) {
    if (file != first) named.push_back({file.get(), shape});
  }
  SkyAxes axes = compared_axes(named, recipe.vis_dataset, band_text(recipe), problems);
  refuse_all(problems);
  digest.update(recipe.vis_dataset + " " + std::to_string(recipe.ra_keep));
  sky.fingerprint = digest.hex();
  sky.notices.insert(sky.notices.end(), axes.notices.begin(), axes.notices.end());
  sky.read_as = read_as(axes.words, "of recipe.band_mhz, " + band_text(recipe) + ", because no file has frequencies");
  sky.unit = std::move(axes.words.unit);
  sky.ra = std::move(axes.words.ra);
  sky.freq_mhz = axes.words.freq_mhz.empty() ? centres_of(recipe, sky.shape[1]) : std::move(axes.words.freq_mhz);
  return sky;
}

SkyFiles open_test_sky(const RecipeConfig& recipe, const Sky& sky, const OpenSky& open, const DataConfig& input,
                       std::vector<std::string>& notices) {
  const SkyFile& own = *std::ranges::find_if(sky.train.signal, is_usable);
  std::vector<NamedSky> named = {{own.get(), sky.shape}};
  std::vector<Problem> problems;
  const auto take = [&](const char* name) {
    const std::vector<std::filesystem::path> paths = sky_paths(std::filesystem::path(recipe.test_dir) / name, "test_dir");
    std::vector<SkyFile> files;
    Side side{.name = std::string(name) + " files of the test",
              .paths = paths,
              .files = files,
              .are_samples = name == std::string_view("signal")};
    side.problems = open_files(paths, recipe, open, files).unusable;
    drop_other_shapes(files, sky.shape, "the files that the model was trained on have",
                      "remove or regrid the file, or give another recipe.test_dir", recipe, side.problems);
    std::vector<Side> sides = {std::move(side)};
    settle(sides, input, problems, notices);
    for (const SkyFile& file : files) {
      if (is_usable(file)) named.push_back({file.get(), sky.shape});
    }
    return files;
  };
  SkyFiles files{.signal = take("signal"), .foreground = take("foreground")};
  refuse_all(problems);
  static_cast<void>(compared_axes(named, recipe.vis_dataset, band_text(recipe), problems));
  refuse_all(problems);
  return files;
}

std::string sky_read_as(const hdf5::File& file) {
  const RecipeConfig recipe;
  const auto sets = file.datasets();
  const auto cube = std::ranges::find(sets, recipe.vis_dataset, &hdf5::Dataset::name);
  const bool is_cube = cube != sets.end() && cube->shape.size() == 3 && (cube->dtype == DType::c64 || cube->dtype == DType::c128);
  if (!is_cube) return "";
  std::vector<Problem> problems;
  const SkyWords words = words_of(file, recipe.vis_dataset, cube->shape, problems);
  refuse_all(problems);
  return to_text(cube->shape) + " baselines, frequencies, RA; " + read_as(words, "without frequencies") +
         joined(words.unread, "", [](const std::string& line) { return "; " + line; });
}

}  // namespace millrace::recipes::cosmology
