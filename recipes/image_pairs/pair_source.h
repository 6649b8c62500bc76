// The samples of a run: pairs of images.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "millrace/core/batch.h"
#include "millrace/data/files/image.h"
#include "millrace/data/loader/source.h"
#include "recipes/image_pairs/config.h"
#include "recipes/image_pairs/pairs.h"

namespace millrace::recipes::image_pairs {

// Reads an image as S x S pixels of three bytes, resized as recipe.resize says. A grey image gets three equal channels;
// transparency is dropped. Throws DataError with the file's name if the file is neither PNG nor JPEG, is damaged, or is smaller
// than the crop.
[[nodiscard]] std::vector<std::uint8_t> read_image(const std::filesystem::path& file, const RecipeConfig& recipe);

// Returns notices about properties of the image files that the network does not see: transparency, 16 bits, rotated pixels. Each
// notice has the number of images with the property.
[[nodiscard]] std::vector<std::string> sign_notices(const data::PicturesSeen& seen);
// Reads the headers of all files.
[[nodiscard]] data::PicturesSeen look_at_heads(const std::vector<ImageFile>& images);

// A source whose sample i is pair i: "images" u8 [2,S,S,3], "label" i64 []. A part (what a cache keeps) is an image, so that a
// cache keeps each image once, however many pairs contain it.
[[nodiscard]] std::shared_ptr<const data::Source> pair_source(const PairFiles& files, Split split, const RecipeConfig& recipe);

}  // namespace millrace::recipes::image_pairs
