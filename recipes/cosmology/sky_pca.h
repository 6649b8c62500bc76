// The foreground components of a run. They are found in a file and checked against the data, or fitted to the training samples.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "millrace/nn/pca.h"
#include "millrace/train/recipe/recipe.h"
#include "recipes/cosmology/sky_source.h"

namespace millrace::recipes::cosmology {

using Tell = std::function<void(const std::string&)>;

[[nodiscard]] std::string pca_file_name(std::int64_t n_fg);  // such as "pca_components_nfg11.safetensors"

struct TrainingPair {
  at::Tensor x, y;
};
// A training sample: x is the signal with foreground, and components are fitted to x; y is the target of x. Both are complex64
// (baselines, frequencies, ra_keep).
[[nodiscard]] TrainingPair training_pair(const SkySource& source, std::int64_t index, std::uint64_t seed);
// The x of training_pair().
[[nodiscard]] at::Tensor training_input(const SkySource& source, std::int64_t index, std::uint64_t seed);
[[nodiscard]] SkySource training_source(const RecipeConfig& recipe, const Sky& sky);  // without augmentation

// Fits components to x of the first min(num_samples, all) training samples, after x is cut and before noise is added. Holds one
// sample in memory at a time. `progress` gets (done, all) after each sample. If a sample can't be read and input.bad_samples is
// fail, throws DataError. With any other policy, leaves the sample out and calls `left_out` with the reason; throws DataError if
// all samples are left out, or more than input.max_bad_fraction allows.
[[nodiscard]] nn::ForegroundPca fit_pca(const RecipeConfig& recipe, const Sky& sky, std::uint64_t seed, std::int64_t num_samples,
                                        const DataConfig& input = {},
                                        const std::function<void(std::int64_t, std::int64_t)>& progress = {},
                                        const Tell& left_out = {});

// Throws DataError if the components do not fit the data's channels or n_fg. If they fit but were computed from other data, as
// their fingerprint shows, calls `report` with a text.
void check_pca(const nn::ForegroundPca& pca, const RecipeConfig& recipe, const Sky& sky, const std::string& where,
               const Tell& report);

// The components of a run. They come from recipe.pca_components_path, or else from a file in the run folder (Millrace's or
// hugh's .pt), or else they are fitted and saved with the run's new files, if there is a run. `report` gets a line that says
// where they come from. Components in the run folder that do not fit the data are reported and fitted again; if
// recipe.pca_components_path names such components, throws DataError.
[[nodiscard]] nn::ForegroundPca stored_pca(const RecipeConfig& recipe, const Sky& sky, const std::filesystem::path& components,
                                           const Context& run, const Tell& report);

}  // namespace millrace::recipes::cosmology
