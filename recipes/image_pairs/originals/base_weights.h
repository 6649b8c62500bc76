// Weights of tower, projector and decoder that others trained.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "recipes/image_pairs/model.h"

namespace millrace::recipes::image_pairs {

// Most bytes that load_base() holds beside the model.
inline constexpr std::int64_t kLoadingBytes = std::int64_t{16} << 20;

// The activation of the tower that config.json beside recipe.base_weights names ("hidden_act" of its vision_config, or of a
// vision model alone); nullopt where there is no such file or word, or no base. SnapshotError for a word that is none of
// Activation's, and for a file that is no JSON object.
[[nodiscard]] std::optional<Activation> activation_of_base(const RecipeConfig& config);

// Copies in what the files of recipe.base_weights hold: safetensors files, and folders with model.safetensors or with
// model.safetensors.index.json and its shards, under names that published_name() knows (names.h). Tower and decoder must be there
// as a whole; the projector may be left out, and stays as it is then. What lies behind the tower's last built block, positions'
// numbers and a CLIP model's text half are left out. A weight is read into the model's own memory where it has the model's type,
// else through a buffer; other float types are converted.
//
// Returns one line about what was taken. SnapshotError names the weight, what the file has and what the model expects: a weight
// that is missing, of another shape, of none of the model's, in two files, of 4 or 8 bits; an index that names a file or a weight
// that is not there. DataError for a damaged file.
std::string load_base(PairModel& model, const RecipeConfig& config);

}  // namespace millrace::recipes::image_pairs
