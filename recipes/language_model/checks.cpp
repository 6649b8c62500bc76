#include "recipes/language_model/checks.h"

#include <string>

#include "millrace/base/error.h"

namespace millrace::recipes::language_model {

std::vector<Problem> problems_of(const RecipeConfig& recipe) {
  std::vector<Problem> problems = shape_problems(model_config(recipe, 1));
  const std::int64_t inputs = recipe.seq_len - 1;  // one less, because the last token of a sequence is only a target
  if (inputs > recipe.model_positions) {
    problems.push_back({"sequences of " + std::to_string(recipe.seq_len) + " tokens need " + std::to_string(inputs) +
                            " positions, but the model has " + std::to_string(recipe.model_positions),
                        "recipe.seq_len, recipe.model_positions",
                        "lower seq_len to <= " + std::to_string(recipe.model_positions + 1) + ", or raise model_positions"});
  }
  if (recipe.val_fraction + recipe.test_fraction >= 1) {
    problems.push_back({"validation and test together take the whole text", "recipe.val_fraction, recipe.test_fraction",
                        "make their sum less than 1; the model learns from the rest"});
  }
  if (recipe.overlap >= recipe.seq_len) {
    problems.push_back({"an overlap of " + std::to_string(recipe.overlap) + " tokens leaves no new token in a sequence of " +
                            std::to_string(recipe.seq_len),
                        "recipe.overlap, recipe.seq_len", "lower overlap below seq_len"});
  }
  return problems;
}

void check_vocabulary(const RecipeConfig& recipe, std::int64_t known) {
  if (recipe.vocab_size == 0 || recipe.vocab_size >= known) return;
  throw ConfigError(Message{"an embedding of " + std::to_string(recipe.vocab_size) + " rows has no room for the text's " +
                                std::to_string(known) + " tokens",
                            "recipe.vocab_size", "raise it to at least " + std::to_string(known) + ", or set it to 0"});
}

at::Tensor checked_tokens(const Tensors& inputs, const ModelConfig& model) {
  const auto found = inputs.find("tokens");
  if (found == inputs.end()) {
    throw UsageError(
        {"the input has no tensor \"tokens\"", "predict", "give token ids of shape (batch, length) under that name"});
  }
  const at::Tensor& tokens = found->second;
  if (!at::isIntegralType(tokens.scalar_type(), /*includeBool=*/false) || tokens.dim() != 2 || tokens.numel() == 0) {
    throw UsageError({"\"tokens\" must be integers of shape (batch, length), and must not be empty", "predict",
                      "millrace inspect shows what the file holds"});
  }
  if (tokens.size(1) > model.positions) {
    throw UsageError({"\"tokens\" is " + std::to_string(tokens.size(1)) + " long, but the model has " +
                          std::to_string(model.positions) + " positions",
                      "predict", "cut the text into pieces of at most " + std::to_string(model.positions) + " tokens"});
  }
  const at::Tensor ids = tokens.to(at::kCPU, at::kLong).contiguous();
  const auto* id = ids.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < ids.numel(); ++i) {
    if (id[i] >= 0 && id[i] < model.vocab_size) continue;
    throw UsageError({"token " + std::to_string(id[i]) + " is not in the vocabulary of " + std::to_string(model.vocab_size),
                      "\"tokens\" row " + std::to_string(i / ids.size(1)) + ", place " + std::to_string(i % ids.size(1)),
                      "encode the text with this model's own tokenizer"});
  }
  return tokens.to(at::kLong);
}

}  // namespace millrace::recipes::language_model
