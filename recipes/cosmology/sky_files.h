// The input of a cosmology run: two folders of HDF5 files, which of them train, and whether they fit each other.
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
#include "recipes/cosmology/config.h"

namespace millrace::recipes::cosmology {

using SkyFile = std::shared_ptr<const hdf5::File>;
// How files are opened, in order: open_hdf5(), or a test's own.
using OpenSky = std::function<std::vector<SkyFile>(std::span<const std::filesystem::path> paths)>;
[[nodiscard]] OpenSky open_hdf5(hdf5::OpenOptions options = {});

// One side of the split.
struct SkyFiles {
  std::vector<SkyFile> signal, foreground;
};

struct Sky {
  SkyFiles train, validation;
  Shape shape;                    // (baselines, frequencies, RA) of every file
  std::vector<double> freq_mhz;   // centres of the channels
  std::string unit;               // of the visibilities, where the files say; empty: kelvin
  std::vector<double> ra;         // degrees, where the files say
  std::string read_as;            // what they say of channels, RA and unit, in one line
  std::vector<std::string> told;  // notices
  std::string fingerprint;        // of names, sizes, shapes and the keys that choose from them
};

// Every *.h5 and *.hdf5 of a folder by name; DataError when there is none (`key` names the folder in it).
[[nodiscard]] std::vector<std::filesystem::path> sky_paths(const std::filesystem::path& folder, const std::string& key,
                                                           std::vector<std::string>* told = nullptr);

struct SplitPaths {
  std::vector<std::filesystem::path> train, validation;
};
// generator(seed) draws u for each file, signal files first: u < 0.9 trains. A list with an empty side gets the last file of the
// other.
struct SplitOfSky {
  SplitPaths signal, foreground;
  std::vector<std::string> told;
};
[[nodiscard]] SplitOfSky split_sky(const std::vector<std::filesystem::path>& signal,
                                   const std::vector<std::filesystem::path>& foreground, std::uint64_t seed,
                                   std::int64_t num_train);

// ConfigError with the keys that can't go together (n_fg, split, ra_keep).
[[nodiscard]] std::vector<Problem> problems_of(const RecipeConfig& recipe);

// Centres of `count` channels of recipe.band_mhz, which no file describes.
[[nodiscard]] std::vector<double> centres_of(const RecipeConfig& recipe, std::int64_t count);

// Opens all files, headers only, and compares them with the shape that most have: one DataError with all that does not fit.
[[nodiscard]] Sky open_sky(const RecipeConfig& recipe, const std::filesystem::path& signal_dir,
                           const std::filesystem::path& foreground_dir, std::uint64_t seed, const OpenSky& open);

// Every file below recipe.test_dir; DataError names the first whose shape is not that of the run's own files, `sky`, and what of
// its axes and units contradicts them.
[[nodiscard]] SkyFiles open_test_sky(const RecipeConfig& recipe, const Sky& sky, const OpenSky& open);

// Of one file, as a run with the recipe's defaults takes it; "" where it has no cube. DataError for what contradicts itself.
[[nodiscard]] std::string sky_read_as(const hdf5::File& file);

}  // namespace millrace::recipes::cosmology
