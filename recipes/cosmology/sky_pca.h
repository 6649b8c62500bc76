// The foreground components of a run: found, checked against the data, or fitted on its training samples.
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

// The contaminated x of one training sample, complex64 (baselines, frequencies, ra_keep), as a fit sees it.
struct TrainingPair {
  at::Tensor x, y;
};
[[nodiscard]] TrainingPair training_pair(const SkySource& source, std::int64_t index, std::uint64_t seed);  // and its target
[[nodiscard]] at::Tensor training_input(const SkySource& source, std::int64_t index, std::uint64_t seed);
[[nodiscard]] SkySource training_source(const RecipeConfig& recipe, const Sky& sky);  // without augmentation

// Fitted on the first min(num_samples, all) training samples: contaminated x after the cut, before noise; one sample in memory at
// a time. `progress` gets (done, all) after each. `left_out` is told why a sample can't be read, which the fit then does without;
// null: such a sample is a DataError, as it always is when none can be read.
[[nodiscard]] nn::ForegroundPca fit_pca(const RecipeConfig& recipe, const Sky& sky, std::uint64_t seed, std::int64_t num_samples,
                                        const std::function<void(std::int64_t, std::int64_t)>& progress = {},
                                        const Tell& left_out = {});

// DataError when the components are not of this data's channels or not n_fg; a fingerprint of other data is told.
void check_pca(const nn::ForegroundPca& pca, const RecipeConfig& recipe, const Sky& sky, const std::string& where,
               const Tell& tell);

// recipe.pca_components_path, else what lies in the run folder (ours, or hugh's .pt), else fitted and kept with the run's
// new files, if there is a run. Says which. Components that were found and do not fit the data are said and fitted again; those
// that the config names are a DataError then.
[[nodiscard]] nn::ForegroundPca stored_pca(const RecipeConfig& recipe, const Sky& sky, const std::filesystem::path& components,
                                           const Context& run, const Tell& tell);

}  // namespace millrace::recipes::cosmology
