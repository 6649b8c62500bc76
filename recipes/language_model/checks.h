// The refusals of a language model, with their texts, and its predicted memory.
#pragma once

#include "millrace/base/error.h"
#include "millrace/core/batch.h"
#include "recipes/language_model/config.h"
#include "recipes/language_model/model.h"

namespace millrace::recipes::language_model {

// Every combination of keys that can't work.
[[nodiscard]] std::vector<Problem> problems_of(const RecipeConfig& recipe);
// ConfigError if recipe.vocab_size is smaller than the tokenizer's `known` tokens.
void check_vocabulary(const RecipeConfig& recipe, std::int64_t known);

// "tokens" of a prediction as int64 (B,T). UsageError if it is missing, has another shape or type, is longer than the model's
// positions or holds an id beyond the vocabulary (the first such id is named).
[[nodiscard]] at::Tensor checked_tokens(const Tensors& inputs, const ModelConfig& model);

}  // namespace millrace::recipes::language_model
