// Volumes of a run: files found, judged by their headers and split; crops of them as samples.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "millrace/core/batch.h"
#include "millrace/data/loader/source.h"
#include "recipes/autoencoder_3d/config.h"
#include "recipes/autoencoder_3d/volume_file.h"

namespace millrace::recipes::autoencoder_3d {

struct VolumeFiles {
  std::vector<VolumeFile> train, validation;
  std::string read_as;            // what the files say of themselves, in one line
  std::vector<std::string> told;  // notices: label = image, voxel sizes that differ, padding, a validation that is cut smaller
};

// The files that a config names (recipe.train_dir and val_dir, else `folder`/train and `folder`/val, else `folder` split by
// val_fraction in an order that `seed` draws), all headers read. DataError for a folder without files and for a file that no crop
// can be cut from; see the recipe's page, "Bad input".
[[nodiscard]] VolumeFiles open_volumes(const RecipeConfig& recipe, const std::filesystem::path& folder, std::uint64_t seed);

// Depth, height and width of the crops that validate: 4*ceil(1.5 p/4) of a patch of p, no more than the smallest file has, down
// to a multiple of what the network halves. Empty when nothing validates.
[[nodiscard]] Shape validation_size(const std::vector<VolumeFile>& validation, const RecipeConfig& recipe);

// One sample per file: "image" f32 [1,d,h,w], the low-count volume; "label" f32 the same of the high-count volume, where
// recipe.target or recipe.image_channels asks for it; with scale_on=volume also "range" f32 [keys,2], percentiles 0 and 99.5 of
// the whole volumes. Training: one random crop of patch_size, the same for both keys. Validation: the centred crop of
// validation_size(). `files` is the split's list in VolumeFiles, not empty.
[[nodiscard]] std::shared_ptr<const data::Source> volume_source(std::vector<VolumeFile> files, Split split,
                                                                const RecipeConfig& recipe);

}  // namespace millrace::recipes::autoencoder_3d
