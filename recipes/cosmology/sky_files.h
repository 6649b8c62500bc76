// The input of a cosmology run: two folders of HDF5 files, their split, and whether they fit together.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/hdf5/file.h"
#include "millrace/train/recipe/config.h"
#include "recipes/cosmology/config.h"

namespace millrace::recipes::cosmology {

using SkyFile = std::shared_ptr<const hdf5::File>;
// Opens files, in order: open_hdf5(), or a test's own function. A file that can't be opened goes to `failed` and is null.
using OpenSky =
    std::function<std::vector<SkyFile>(std::span<const std::filesystem::path> paths, const hdf5::File::OnFailure& failed)>;
[[nodiscard]] OpenSky open_hdf5(hdf5::OpenOptions options = {});

// One side of the split.
struct SkyFiles {
  std::vector<SkyFile> signal, foreground;
};

struct Sky {
  SkyFiles train, validation;
  Shape shape;                   // (baselines, frequencies, RA) of every file
  std::vector<double> freq_mhz;  // centres of the channels
  std::string unit;              // of the visibilities, if the files name one; empty: kelvin
  std::vector<double> ra;        // degrees, if the files have them
  std::string read_as;           // the files' description of channels, RA and unit, in one line
  std::vector<std::string> notices;
  std::string fingerprint;  // of names, sizes, shapes and the keys that select from them
};

// Every *.h5 and *.hdf5 of a folder by name; DataError if there is no such file (`key` names the folder in it).
[[nodiscard]] std::vector<std::filesystem::path> sky_paths(const std::filesystem::path& folder, const std::string& key,
                                                           std::vector<std::string>* notices = nullptr);

struct SplitPaths {
  std::vector<std::filesystem::path> train, validation;
};
struct SplitOfSky {
  SplitPaths signal, foreground;
  std::vector<std::string> notices;
};
// A generator seeded with `seed` draws u in [0, 1) for each file, signal files first: files with u < 0.9 are for training. If one
// side of the split gets no file, the last file of the other side goes there. At most `num_train` signal files are for training;
// -1 = all.
[[nodiscard]] SplitOfSky split_sky(const std::vector<std::filesystem::path>& signal,
                                   const std::vector<std::filesystem::path>& foreground, std::uint64_t seed,
                                   std::int64_t num_train);

// Returns the problems of keys that can't be combined (n_fg, split, ra_keep), for a ConfigError.
[[nodiscard]] std::vector<Problem> problems_of(const RecipeConfig& recipe);

// Centres of `count` channels over recipe.band_mhz, for files without frequencies.
[[nodiscard]] std::vector<double> centres_of(const RecipeConfig& recipe, std::int64_t count);

// Opens all files, headers only, and compares them with the commonest shape: one DataError with all misfits. Unless
// input.bad_samples is fail, a file that can't be opened, has no cube or has another shape stays in its place as unusable_sky(),
// is told, and only more of them than input.max_bad_fraction allows are a DataError; contradictions between axes always are.
[[nodiscard]] Sky open_sky(const RecipeConfig& recipe, const std::filesystem::path& signal_dir,
                           const std::filesystem::path& foreground_dir, std::uint64_t seed, const OpenSky& open,
                           const DataConfig& input = {});

// Every file below recipe.test_dir. DataError names the first whose shape differs from that of the run's own files, `sky`, and
// any contradiction with their axes and units. Files that can't be used are as in open_sky().
[[nodiscard]] SkyFiles open_test_sky(const RecipeConfig& recipe, const Sky& sky, const OpenSky& open, const DataConfig& input,
                                     std::vector<std::string>& notices);

// Description of one file as a run with the recipe's defaults reads it; "" if it has no cube. DataError if it contradicts itself.
[[nodiscard]] std::string sky_read_as(const hdf5::File& file);

}  // namespace millrace::recipes::cosmology
