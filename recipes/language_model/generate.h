// Generates text with a trained model: by drawing tokens, or by beam search.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "recipes/language_model/config.h"
#include "recipes/language_model/model.h"

namespace millrace::recipes::language_model {

// Draws a token. First keeps the top_k most likely tokens at this temperature. Of these, keeps the smallest number of most
// likely tokens whose total probability reaches top_p. `uniform` in [0,1) selects the token from the kept ones. Temperature 0
// gives the most likely token. Depends only on the arguments. `logits` must not be empty.
[[nodiscard]] std::int64_t choose_token(std::span<const float> logits, const GenerateConfig& config, double uniform);

// Continues `prompt` (at least one token) by max_length tokens, or until `end`, which is not part of the result. The random
// numbers depend on config.seed and the position of the token, so the same call generates the same text. The model runs in
// evaluation mode and sees the last min(positions, max_context_length) tokens.
[[nodiscard]] std::vector<std::int64_t> write_tokens(Transformer& model, std::vector<std::int64_t> prompt,
                                                     const GenerateConfig& config, std::int64_t end);

struct BeamResult {
  std::vector<std::int64_t> tokens;  // the tokens after the prompt, without `end`
  double log_probability = 0;        // log probability of these tokens, given the prompt; includes `end` if it was reached
  double score = 0;                  // log_probability / length^length_penalty
};

// The best continuation that beam search finds with config.beam_size candidates.
[[nodiscard]] BeamResult beam_search(Transformer& model, const std::vector<std::int64_t>& prompt, const GenerateConfig& config,
                                     std::int64_t end, double length_penalty = 0.6);

}  // namespace millrace::recipes::language_model
