// Volumes of a run: files found, checked by their headers and split; crops of them as samples.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "millrace/core/batch.h"
#include "millrace/data/loader/source.h"
#include "millrace/train/recipe/config.h"
#include "recipes/autoencoder_3d/config.h"
#include "recipes/autoencoder_3d/volume_file.h"

namespace millrace::recipes::autoencoder_3d {

struct VolumeFiles {
  std::vector<VolumeFile> train, validation;
  std::string read_as;               // the files' description of themselves, in one line
  std::vector<std::string> notices;  // label = image, unequal voxel sizes, padding, a smaller validation crop
};

// Opens the files that a config names (recipe.train_dir and val_dir, else `folder`/train and `folder`/val, else `folder` split by
// val_fraction in an order drawn from `seed`) and reads all headers. DataError for a folder without files and for a file too
// small for a crop; see the recipe's page, "Bad input".
// Unless input.bad_samples is fail, a file that can't be opened stays in its place, unusable and told; DataError if they are more
// than input.max_bad_fraction allows, or all.
[[nodiscard]] VolumeFiles open_volumes(const RecipeConfig& recipe, const std::filesystem::path& folder, std::uint64_t seed,
                                       const DataConfig& input = {});

// Depth, height and width of the validation crops: 4*ceil(1.5 p/4) for a patch of p, at most the smallest file's size, rounded
// down to a multiple of the network's size divisor. Empty if there is no validation.
[[nodiscard]] Shape validation_size(const std::vector<VolumeFile>& validation, const RecipeConfig& recipe);

// One sample per file: "image" f32 [1,d,h,w], the low-count volume; "label" f32 of the same shape, the high-count volume, if
// recipe.target or recipe.image_channels needs it; with scale_on=volume also "range" f32 [keys,2], percentiles 0 and 99.5 of the
// whole volumes. Training: one random crop of patch_size, the same for both keys. Validation: the centred crop of
// validation_size(). `files` is the split's list in VolumeFiles, not empty.
[[nodiscard]] std::shared_ptr<const data::Source> volume_source(std::vector<VolumeFile> files, Split split,
                                                                const RecipeConfig& recipe);

}  // namespace millrace::recipes::autoencoder_3d
