#include "recipes/image_pairs/prompt.h"

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace millrace::recipes::image_pairs {
namespace {

constexpr std::string_view kBetween = ", ";  // the text between the images and the question
constexpr std::size_t kAnswers = 3;
constexpr std::int64_t kPadding = 0;  // any token would do, because no position attends to the padding

std::string count_text(std::int64_t value) { return std::to_string(value); }

Prompt byte_prompt(const RecipeConfig& config) {
  const std::int64_t patches = patches_of(config);
  Prompt prompt{.tokens = {ByteTokens::kBegin}, .first = 1, .second = 1 + patches};
  prompt.tokens.insert(prompt.tokens.end(), static_cast<std::size_t>(2 * patches), ByteTokens::kImage);
  for (const std::string_view text : {kBetween, std::string_view(config.question)}) {
    for (const char letter : text) prompt.tokens.push_back(static_cast<unsigned char>(letter));
  }
  return prompt;
}

// Returns the prompt in recipe.prompt_token_ids; nullopt if that list does not have two images.
std::optional<Prompt> listed_prompt(const RecipeConfig& config) {
  const std::int64_t patches = patches_of(config), image = config.image_token_id;
  const std::vector<std::int64_t>& ids = config.prompt_token_ids;
  const auto images = std::ranges::count(ids, image);
  if (images != 2 && images != 2 * patches) return std::nullopt;
  const std::int64_t each = images == 2 ? patches : 1;  // number of tokens in the list for each image token
  Prompt prompt;
  std::vector<std::int64_t> places;
  for (const std::int64_t id : ids) {
    if (id == image) places.push_back(static_cast<std::int64_t>(prompt.tokens.size()));
    prompt.tokens.insert(prompt.tokens.end(), static_cast<std::size_t>(id == image ? each : 1), id);
  }
  const auto half = static_cast<std::ptrdiff_t>(places.size() / 2);
  prompt.first = places.front();
  prompt.second = *(places.begin() + half);
  if (*(places.begin() + half - 1) + each != prompt.first + patches || places.back() + each != prompt.second + patches)
    return std::nullopt;
  return prompt;
}

void add_vocabulary_problem(const std::vector<std::int64_t>& ids, const RecipeConfig& config, bool prompt,
                            std::vector<Problem>& problems) {
  for (const std::int64_t id : ids) {
    if ((prompt && id == config.image_token_id) || (id >= 0 && id < config.vocab_size)) continue;
    problems.push_back(
        {"token " + count_text(id) + " is outside the decoder's vocabulary of " + count_text(config.vocab_size),
         prompt ? "recipe.prompt_token_ids" : "recipe.answer_token_ids",
         "use the base model's tokenizer, or set recipe.vocab_size to the number of rows of the base model's embedding"});
    return;
  }
}

std::vector<Problem> answer_problems(const RecipeConfig& config) {
  std::vector<Problem> problems;
  const std::vector<std::int64_t>& ids = config.answer_token_ids;
  if (ids.empty()) {
    if (!config.prompt_token_ids.empty()) {
      problems.push_back({"recipe.prompt_token_ids is set, but recipe.answer_token_ids is not", "recipe.answer_token_ids",
                          "give the tokens of First, Second and Similar of the same tokenizer"});
    } else if (config.vocab_size < ByteTokens::kSize) {
      problems.push_back({"the byte tokenizer has " + count_text(ByteTokens::kSize) + " tokens, but the decoder has " +
                              count_text(config.vocab_size),
                          "recipe.vocab_size", "use " + count_text(ByteTokens::kSize) + " or more"});
    }
  } else if (ids.size() != kAnswers || std::set(ids.begin(), ids.end()).size() != kAnswers) {
    problems.push_back(
        {count_text(static_cast<std::int64_t>(ids.size())) + " tokens for the answers, but there must be three different tokens",
         "recipe.answer_token_ids", "give the first token of each of First, Second and Similar"});
  } else {
    add_vocabulary_problem(ids, config, false, problems);
  }
  return problems;
}

}  // namespace

std::int64_t patches_of(const RecipeConfig& config) {
  const std::int64_t across = config.image_size / config.patch_size;
  return across * across;
}

std::vector<Problem> prompt_problems(const RecipeConfig& config) {
  std::vector<Problem> problems = answer_problems(config);
  const bool listed = !config.prompt_token_ids.empty();
  const std::optional<Prompt> prompt = listed ? listed_prompt(config) : byte_prompt(config);
  const std::string key = listed ? "recipe.prompt_token_ids" : "recipe.question";
  if (!prompt) {
    problems.push_back({"the prompt has " + count_text(std::ranges::count(config.prompt_token_ids, config.image_token_id)) +
                            " image tokens " + count_text(config.image_token_id) + ", but two images take one token each, or " +
                            count_text(patches_of(config)) + " tokens each",
                        "recipe.prompt_token_ids, recipe.image_token_id",
                        "put recipe.image_token_id at the place of each image"});
    return problems;
  }
  const auto length = static_cast<std::int64_t>(prompt->tokens.size());
  if (length > config.max_seq_len) {
    problems.push_back({"the prompt has " + count_text(length) + " tokens, but at most " + count_text(config.max_seq_len) +
                            " are allowed; the prompt can't be cut, because the question is at its end",
                        key + ", recipe.max_seq_len",
                        "ask a shorter question, or set recipe.max_seq_len to " + count_text(length)});
  }
  if (listed) add_vocabulary_problem(prompt->tokens, config, true, problems);
  return problems;
}

Prompt prompt_of(const RecipeConfig& config) {
  if (auto problems = prompt_problems(config); !problems.empty()) throw ConfigError(std::move(problems));
  return config.prompt_token_ids.empty() ? byte_prompt(config) : listed_prompt(config).value();
}

std::vector<std::int64_t> answers_of(const RecipeConfig& config) {
  if (auto problems = answer_problems(config); !problems.empty()) throw ConfigError(std::move(problems));
  if (!config.answer_token_ids.empty()) return config.answer_token_ids;
  return {ByteTokens::kFirst, ByteTokens::kSecond, ByteTokens::kSimilar};
}

Prompts to_tensors(const std::vector<Prompt>& prompts, at::Device device) {
  MR_CHECK(!prompts.empty(), "a batch needs prompts");
  std::vector<std::int64_t> lengths;
  for (const Prompt& prompt : prompts) {
    MR_CHECK(prompt.first == prompts.front().first && prompt.second == prompts.front().second,
             "the images of a batch's prompts stand at the same places");
    lengths.push_back(static_cast<std::int64_t>(prompt.tokens.size()));
  }
  const std::int64_t longest = std::ranges::max(lengths);
  at::Tensor tokens = at::full({static_cast<std::int64_t>(prompts.size()), longest}, kPadding, at::kLong);
  for (std::size_t i = 0; i < prompts.size(); ++i)
    std::ranges::copy(prompts[i].tokens, tokens.mutable_data_ptr<std::int64_t>() + static_cast<std::int64_t>(i) * longest);
  Prompts batch{.tokens = tokens.to(device), .first = prompts.front().first, .second = prompts.front().second};
  if (std::ranges::min(lengths) < longest)
    batch.lengths = at::tensor(lengths, at::kLong).to(device);  // host: copied once in a run
  return batch;
}

}  // namespace millrace::recipes::image_pairs
