// Weights of AGI2, and for it. AGI2 keeps its sinusoids as a buffer, `position_embeddings.pe`, and adds
// them to embeddings as they are; here the sinusoids are computed, and recipe.embedding_scale multiplies embeddings by
// sqrt(model_embd) before. A checkpoint of AGI2 also holds its config and its vocabulary, as attributes of objects.
#pragma once

#include <string>
#include <vector>

#include "millrace/config/schema.h"
#include "millrace/train/assembly/weights.h"

namespace millrace::recipes::language_model {

// For Entry::adopt_weights: sizes of the model from the tensors, its heads from the checkpoint's config, embedding_scale from
// what the file is, the vocabulary from the checkpoint. ConfigError: a key that somebody set says otherwise, or nobody says how
// many heads there are. DataError: a buffer of other positions; layers that are none of this model's.
std::vector<std::string> adopt_weights(Weights& weights, config::Resolved& config);

// For Entry::complete_weights: the buffer, for a model that computes what AGI2 does. Of any other model a line says that
// AGI2 takes no file of it.
std::vector<std::string> complete_weights(Tensors& weights, const Json& config);

}  // namespace millrace::recipes::language_model
