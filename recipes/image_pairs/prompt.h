// The decoder's input: two images and a question, as tokens.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "millrace/base/error.h"
#include "recipes/image_pairs/config.h"

namespace millrace::recipes::image_pairs {

// The tokenizer of recipe.question: each byte is a token.
struct ByteTokens {
  static constexpr std::int64_t kPad = 256, kBegin = 257, kImage = 258, kFirst = 259, kSecond = 260, kSimilar = 261, kSize = 262;
};

// One prompt: P tokens for each image, starting at `first` and `second`.
struct Prompt {
  std::vector<std::int64_t> tokens;
  std::int64_t first = 0, second = 0;
};

// Begin, P image tokens, P image tokens, ", " and the question; or recipe.prompt_token_ids, in which a single image token stands
// for P of them. ConfigError: longer than recipe.max_seq_len, tokens beyond the vocabulary, not two images.
[[nodiscard]] Prompt prompt_of(const RecipeConfig& config);
// The tokens of First, Second, Similar.
[[nodiscard]] std::vector<std::int64_t> answers_of(const RecipeConfig& config);
[[nodiscard]] std::vector<Problem> prompt_problems(const RecipeConfig& config);
// Number of patches of an image.
[[nodiscard]] std::int64_t patches_of(const RecipeConfig& config);

// Prompts of several rows, padded at their ends to one length. The images have the same positions in all of them.
struct Prompts {
  at::Tensor tokens;   // (R, L) or (1, L) int64
  at::Tensor lengths;  // (R) int64; undefined: all are L
  std::int64_t first = 0, second = 0;
};
[[nodiscard]] Prompts to_tensors(const std::vector<Prompt>& prompts, at::Device device);

}  // namespace millrace::recipes::image_pairs
