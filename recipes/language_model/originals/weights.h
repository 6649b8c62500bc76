// Conversion of weights from and to AGI2. AGI2 keeps its sinusoids as a buffer, `position_embeddings.pe`, and adds them to
// unscaled embeddings; here the sinusoids are computed, and recipe.embedding_scale first multiplies embeddings by
// sqrt(model_embd). A checkpoint of AGI2 also holds its config and its vocabulary, as attributes of objects.
#pragma once

#include <string>
#include <vector>

#include "millrace/config/schema.h"
#include "millrace/train/assembly/weights.h"

namespace millrace::recipes::language_model {

// For Entry::adopt_weights: takes the model's sizes from the tensors, its heads from the checkpoint's config, embedding_scale
// from the kind of file, and the vocabulary from the checkpoint. ConfigError: an explicitly set key contradicts the file, or the
// number of heads is unknown. DataError: a buffer of other positions; layers that this model does not have.
std::vector<std::string> adopt_weights(Weights& weights, config::Resolved& config);

// For Entry::complete_weights: adds the buffer if the model computes what AGI2 does. For any other model, returns a line that
// AGI2 can't load its files.
std::vector<std::string> complete_weights(Tensors& weights, const Json& config);

}  // namespace millrace::recipes::language_model
