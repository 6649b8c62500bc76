// Converts weights from and to AGI2 (the program that this recipe follows, see README.md). AGI2 keeps its sinusoids as a buffer,
// `position_embeddings.pe`, and adds them to embeddings without a scale. Here the sinusoids are computed, and
// recipe.embedding_scale first multiplies embeddings by sqrt(model_embd). A checkpoint of AGI2 also holds its config and its
// vocabulary, as attributes of Python objects.
#pragma once

#include <string>
#include <vector>

#include "millrace/config/schema.h"
#include "millrace/train/assembly/weights.h"

namespace millrace::recipes::language_model {

// For Entry::adopt_weights. Takes the sizes of the model from the tensors, the number of heads from the checkpoint's config,
// embedding_scale from the kind of file, and the vocabulary from the checkpoint. Throws ConfigError if a key that the user set
// contradicts the file, or if the number of heads is unknown. Throws DataError for a buffer with other positions, and for layers
// that this model does not have.
std::vector<std::string> adopt_weights(Weights& weights, config::Resolved& config);

// For Entry::complete_weights. If the model computes what AGI2 computes, adds AGI2's buffer. Otherwise returns a line that says
// that AGI2 can't load the file.
std::vector<std::string> complete_weights(Tensors& weights, const Json& config);

}  // namespace millrace::recipes::language_model
