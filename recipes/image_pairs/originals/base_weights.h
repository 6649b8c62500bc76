// Weights of tower, projector and decoder from other programs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "recipes/image_pairs/model.h"

namespace millrace::recipes::image_pairs {

// Upper limit of the memory that load_base() holds in addition to the model.
inline constexpr std::int64_t kLoadingBytes = std::int64_t{16} << 20;

// The tower's activation named by config.json next to recipe.base_weights ("hidden_act" of its vision_config, or of a vision
// model alone); nullopt without a base, such a file or such a word. SnapshotError for a word that Activation lacks, and for a
// file that is not a JSON object.
[[nodiscard]] std::optional<Activation> activation_of_base(const RecipeConfig& config);

// Copies the weights in the files of recipe.base_weights: safetensors files, and folders with model.safetensors or with
// model.safetensors.index.json and its shards, under names that published_name() knows (names.h). Tower and decoder must be
// complete; a missing projector stays unchanged. The tower's parts behind its last built block, position ids and a CLIP model's
// text half are skipped. A weight is read into the model's own memory if the types are equal, else through a buffer; other float
// types are converted.
//
// Returns one line about the weights that were copied. SnapshotError names the weight, its form in the file and the form that the
// model expects, for a weight that is missing, unknown to the model, in two files, of another shape, or of 4 or 8 bits; also for
// an index that names a missing file or weight. DataError for a damaged file.
std::string load_base(PairModel& model, const RecipeConfig& config);

}  // namespace millrace::recipes::image_pairs
