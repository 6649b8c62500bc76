// The foreground components of a run: found, checked against the data, or fitted to its training samples.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "millrace/nn/pca.h"
#include "millrace/train/recipe/recipe.h"
#include "recipes/cosmology/sky_source.h"

namespace millrace::recipes::cosmology {

using Tell = std::function<void(const std::string&)>;

[[nodiscard]] std::string pca_file_name(std::int64_t n_fg);  // "pca_components_nfg11.safetensors"

struct TrainingPair {
  at::Tensor x, y;
};
// One training sample, complex64 (baselines, frequencies, ra_keep): the contaminated x, the input of a fit, and its target y.
[[nodiscard]] TrainingPair training_pair(const SkySource& source, std::int64_t index, std::uint64_t seed);
// The x of training_pair().
[[nodiscard]] at::Tensor training_input(const SkySource& source, std::int64_t index, std::uint64_t seed);
[[nodiscard]] SkySource training_source(const RecipeConfig& recipe, const Sky& sky);  // without augmentation

// Fits the first min(num_samples, all) training samples: contaminated x after the cut, before noise; one sample in memory at a
// time. `progress` gets (done, all) after each. DataError for an unreadable sample if input.bad_samples is fail; else the fit
// goes without it and calls `left_out` with the reason. DataError if these are more than input.max_bad_fraction allows, or all.
[[nodiscard]] nn::ForegroundPca fit_pca(const RecipeConfig& recipe, const Sky& sky, std::uint64_t seed, std::int64_t num_samples,
                                        const DataConfig& input = {},
                                        const std::function<void(std::int64_t, std::int64_t)>& progress = {},
                                        const Tell& left_out = {});

// DataError if the components do not match this data's channels or n_fg; a fingerprint of other data is only reported.
void check_pca(const nn::ForegroundPca& pca, const RecipeConfig& recipe, const Sky& sky, const std::string& where,
               const Tell& report);

// Loads recipe.pca_components_path, else a file in the run folder (ours, or hugh's .pt); else fits components and keeps them with
// the run's new files, if there is a run. Reports which of these it did. Components found in the run folder that do not fit the
// data are reported and fitted again; components named by the config are then a DataError.
[[nodiscard]] nn::ForegroundPca stored_pca(const RecipeConfig& recipe, const Sky& sky, const std::filesystem::path& components,
                                           const Context& run, const Tell& report);

}  // namespace millrace::recipes::cosmology
