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
// A function that opens files and returns them in the same order: open_hdf5(), or a function of a test. A file that can't be
// opened is passed to `failed` and is null in the result.
using OpenSky =
    std::function<std::vector<SkyFile>(std::span<const std::filesystem::path> paths, const hdf5::File::OnFailure& failed)>;
[[nodiscard]] OpenSky open_hdf5(hdf5::OpenOptions options = {});

// The files for training or for validation.
struct SkyFiles {
  std::vector<SkyFile> signal, foreground;
};

struct Sky {
  SkyFiles train, validation;
  Shape shape;                   // (baselines, frequencies, RA), the same for every file
  std::vector<double> freq_mhz;  // centres of the channels
  std::string unit;              // unit of the visibilities; empty: the files name no unit, so the unit is kelvin
  std::vector<double> ra;        // in degrees; empty: the files have no RA
  std::string read_as;           // how channels, RA and unit are read, in one line
  std::vector<std::string> notices;
  std::string fingerprint;  // hash of names, sizes, shapes, and the config keys that select from the files
};

// All *.h5 and *.hdf5 of a folder, sorted by name. Throws DataError if there is no such file. `key`: the config key that names
// the folder, for the message.
[[nodiscard]] std::vector<std::filesystem::path> sky_paths(const std::filesystem::path& folder, const std::string& key,
                                                           std::vector<std::string>* notices = nullptr);

struct SplitPaths {
  std::vector<std::filesystem::path> train, validation;
};
struct SplitOfSky {
  SplitPaths signal, foreground;
  std::vector<std::string> notices;
};
// Splits the files into training and validation. A random generator with the seed `seed` draws u in [0, 1) for each file, signal
// files first; files with u < 0.9 are for training. If training or validation gets no signal file, it takes the last signal file
// of the other; the same for foreground files. At most `num_train` signal files are for training; -1 = no limit.
[[nodiscard]] SplitOfSky split_sky(const std::vector<std::filesystem::path>& signal,
                                   const std::vector<std::filesystem::path>& foreground, std::uint64_t seed,
                                   std::int64_t num_train);

// The problems of keys that can't be combined (n_fg, split, ra_keep), for a ConfigError.
[[nodiscard]] std::vector<Problem> problems_of(const RecipeConfig& recipe);

// The centres of `count` channels over recipe.band_mhz, for files without frequencies.
[[nodiscard]] std::vector<double> centres_of(const RecipeConfig& recipe, std::int64_t count);

// Opens all files (headers only) and compares them with the shape that most files have. Throws one DataError that lists all
// files that do not fit. If input.bad_samples is not fail, a file that can't be opened, has no cube or has another shape is
// reported and stays in the list as unusable_sky(). DataError is then thrown only if there are more such files than
// input.max_bad_fraction allows. Contradictions between axes are always errors.
[[nodiscard]] Sky open_sky(const RecipeConfig& recipe, const std::filesystem::path& signal_dir,
                           const std::filesystem::path& foreground_dir, std::uint64_t seed, const OpenSky& open,
                           const DataConfig& input = {});

// Opens the files in recipe.test_dir. `sky`: the run's own files. Throws DataError for the first file whose shape differs from
// that of `sky`, and if axes or units contradict those of `sky`. Files that can't be used are handled as in open_sky().
[[nodiscard]] SkyFiles open_test_sky(const RecipeConfig& recipe, const Sky& sky, const OpenSky& open, const DataConfig& input,
                                     std::vector<std::string>& notices);

// How a run with the recipe's defaults would read the file, in words; "" if it has no cube. Throws DataError if the file
// contradicts itself.
[[nodiscard]] std::string sky_read_as(const hdf5::File& file);

}  // namespace millrace::recipes::cosmology
