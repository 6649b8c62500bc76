// Checks of a language model's config and input, and its predicted memory.
#pragma once

#include "millrace/base/error.h"
#include "millrace/core/batch.h"
#include "recipes/language_model/config.h"
#include "recipes/language_model/model.h"

namespace millrace::recipes::language_model {

// A problem for each combination of keys that can't work.
[[nodiscard]] std::vector<Problem> problems_of(const RecipeConfig& recipe);
// Throws ConfigError if recipe.vocab_size is smaller than `known`, the number of the tokenizer's tokens.
void check_vocabulary(const RecipeConfig& recipe, std::int64_t known);

// Returns the input "tokens" of a prediction as int64 (B,T). Throws UsageError if "tokens" is missing, has another shape or
// type, is longer than the model's positions, or has an id beyond the vocabulary; the message names the first such id.
[[nodiscard]] at::Tensor checked_tokens(const Tensors& inputs, const ModelConfig& model);

}  // namespace millrace::recipes::language_model
