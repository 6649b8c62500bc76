// The input of the decoder: two images and a question, as tokens.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "millrace/base/error.h"
#include "recipes/image_pairs/config.h"

namespace millrace::recipes::image_pairs {

// The tokenizer for recipe.question: each byte is a token, and there are a few further tokens.
struct ByteTokens {
  static constexpr std::int64_t kPad = 256, kBegin = 257, kImage = 258, kFirst = 259, kSecond = 260, kSimilar = 261, kSize = 262;
};

// A prompt. The P tokens of each of the two images begin at `first` and `second`.
struct Prompt {
  std::vector<std::int64_t> tokens;
  std::int64_t first = 0, second = 0;
};

// The prompt of a config: begin, P image tokens, P image tokens, ", " and the question. If recipe.prompt_token_ids is set, the
// prompt is that list, in which one image token stands for P of them. Throws ConfigError if the prompt is longer than
// recipe.max_seq_len, has tokens beyond the vocabulary, or has not exactly two images.
[[nodiscard]] Prompt prompt_of(const RecipeConfig& config);
// The tokens of the answers First, Second and Similar.
[[nodiscard]] std::vector<std::int64_t> answers_of(const RecipeConfig& config);
[[nodiscard]] std::vector<Problem> prompt_problems(const RecipeConfig& config);
// The number of patches of an image.
[[nodiscard]] std::int64_t patches_of(const RecipeConfig& config);

// The prompts of several rows, padded at their ends to the same length. In all rows the images have the same positions.
struct Prompts {
  at::Tensor tokens;   // (R, L) or (1, L) int64
  at::Tensor lengths;  // (R) int64; undefined: all rows have the length L
  std::int64_t first = 0, second = 0;
};
[[nodiscard]] Prompts to_tensors(const std::vector<Prompt>& prompts, at::Device device);

}  // namespace millrace::recipes::image_pairs
