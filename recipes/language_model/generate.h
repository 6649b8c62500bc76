// Text generation with a trained model: drawing token by token, and beam search.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "recipes/language_model/config.h"
#include "recipes/language_model/model.h"

namespace millrace::recipes::language_model {

// Draws one token from logits: first the top_k most likely at this temperature, then the smallest set of them whose share reaches
// top_p, then the token at `uniform` in [0,1). Temperature 0 picks the most likely. A pure function; logits must not be empty.
[[nodiscard]] std::int64_t choose_token(std::span<const float> logits, const GenerateConfig& config, double uniform);

// Continues `prompt` (at least one token) by max_length tokens or until `end`, which is not part of the result. The draws are
// keyed by config.seed and the token's position, so the same call generates the same text. The model runs in evaluation mode and
// sees the last min(positions, max_context_length) tokens.
[[nodiscard]] std::vector<std::int64_t> write_tokens(Transformer& model, std::vector<std::int64_t> prompt,
                                                     const GenerateConfig& config, std::int64_t end);

struct BeamResult {
  std::vector<std::int64_t> tokens;  // the tokens after the prompt, without `end`
  double log_probability = 0;        // of these tokens (and `end`, if it was reached), given the prompt
  double score = 0;                  // log_probability / length^length_penalty
};

// The best continuation found with config.beam_size candidates.
[[nodiscard]] BeamResult beam_search(Transformer& model, const std::vector<std::int64_t>& prompt, const GenerateConfig& config,
                                     std::int64_t end, double length_penalty = 0.6);

}  // namespace millrace::recipes::language_model
