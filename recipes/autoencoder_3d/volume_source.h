// The volumes of a run: finds the files, checks their headers and splits them. Its samples are crops of the volumes.
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
  std::string read_as;               // how the files are read, in one line
  std::vector<std::string> notices;  // lines for the user about labels that equal the image, unequal voxel sizes, padding, a
                                     // smaller validation crop
};

// Opens the files that a config names and reads all headers. The folders are recipe.train_dir and val_dir, or else
// `folder`/train and `folder`/val, or else `folder`. A share val_fraction of the files in `folder` is for validation, drawn with
// `seed`. Throws DataError for a folder without files and for a file that is too small for a crop; see the recipe's page, "Bad
// input".
// If input.bad_samples is not fail, a file that can't be opened is reported and stays in the list as unusable. DataError is then
// thrown only if there are more such files than input.max_bad_fraction allows, or if no file can be opened.
[[nodiscard]] VolumeFiles open_volumes(const RecipeConfig& recipe, const std::filesystem::path& folder, std::uint64_t seed,
                                       const DataConfig& input = {});

// Depth, height and width of the validation crops. For a patch of p voxels, a side has 4*ceil(1.5 p/4) voxels, but at most as
// many as in the smallest file. It is then rounded down to a multiple of the network's size divisor. Empty if there is no
// validation.
[[nodiscard]] Shape validation_size(const std::vector<VolumeFile>& validation, const RecipeConfig& recipe);

// A source with a sample for each file. "image" f32 [1,d,h,w] is the low-count volume. "label", of the same shape, is the
// high-count volume; it is left out unless recipe.target or recipe.image_channels needs it. With scale_on=volume, "range" f32
// has percentiles 0 and 99.5 of the whole volume, [1,2] for "image" alone or [2,2] for "image" and "label". In training a sample
// is a random crop of patch_size, the same for image and label; in validation it is the centred crop of validation_size().
// `files` is the list of the split in VolumeFiles; it must not be empty.
[[nodiscard]] std::shared_ptr<const data::Source> volume_source(std::vector<VolumeFile> files, Split split,
                                                                const RecipeConfig& recipe);

}  // namespace millrace::recipes::autoencoder_3d
