// Reads weights of tower, projector and decoder that other programs saved.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "recipes/image_pairs/model.h"

namespace millrace::recipes::image_pairs {

// The most bytes that load_base() holds in addition to the model.
inline constexpr std::int64_t kLoadingBytes = std::int64_t{16} << 20;

// The activation of the tower according to the config.json next to recipe.base_weights ("hidden_act" in its vision_config, or at
// the top level in the config of a vision model). nullopt without recipe.base_weights, without such a file, or if the file names
// no activation. Throws SnapshotError for a name that Activation lacks, and for a file that is not a JSON object.
[[nodiscard]] std::optional<Activation> activation_of_base(const RecipeConfig& config);

// Copies the weights in the files of recipe.base_weights: safetensors files, and folders with model.safetensors, or with
// model.safetensors.index.json and its shards. Names are those that published_name() knows (names.h). Tower and decoder must be
// complete; if the projector is missing, the model's stays unchanged. These are skipped: the parts of the tower after the last
// block that the model builds; position ids; the text half of a CLIP model. A weight is read directly into the model's memory if
// the types are equal, else through a buffer; other float types are converted.
//
// Returns a line about the weights that were copied. Throws SnapshotError for a weight that is missing, unknown to the model, in
// two files, of another shape, or of 4 or 8 bits; the message has the weight, its form in the file and the form that the model
// expects. Also throws it for an index that names a missing file or weight. Throws DataError for a damaged file.
std::string load_base(PairModel& model, const RecipeConfig& config);

}  // namespace millrace::recipes::image_pairs
