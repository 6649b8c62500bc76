#include "recipes/language_model/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace millrace::recipes::language_model {
namespace {

constexpr std::int64_t kEnd = 3;

// Logits of the probabilities .5, .25, .15 and .1 for the tokens 2, 0, 3 and 1.
const std::array<float, 4> kLogits = {std::log(0.25F), std::log(0.1F), std::log(0.5F), std::log(0.15F)};

GenerateConfig all_tokens() { return {.temperature = 1.0, .top_k = 0, .top_p = 1.0}; }

TEST(ChooseToken, TakesTheTokenThatTheDrawFallsOn) {
  const GenerateConfig config = all_tokens();
  EXPECT_EQ(choose_token(kLogits, config, 0.0), 2);
  EXPECT_EQ(choose_token(kLogits, config, 0.49), 2);
  EXPECT_EQ(choose_token(kLogits, config, 0.51), 0);
  EXPECT_EQ(choose_token(kLogits, config, 0.76), 3);
  EXPECT_EQ(choose_token(kLogits, config, 0.91), 1);
  EXPECT_EQ(choose_token(kLogits, config, std::nextafter(1.0, 0.0)), 1);
}

TEST(ChooseToken, TemperatureZeroIsGreedyAndHighFlattens) {
  GenerateConfig config = all_tokens();
  config.temperature = 0;
  for (const double uniform : {0.0, 0.5, 0.999}) EXPECT_EQ(choose_token(kLogits, config, uniform), 2);
  config.temperature = 1000;
  EXPECT_EQ(choose_token(kLogits, config, 0.3), 0);  // nearly uniform, so .3 is in the second quarter
}

TEST(ChooseToken, TopKKeepsTheMostLikelyAndMayExceedTheVocabulary) {
  GenerateConfig config = all_tokens();
  config.top_k = 2;
  EXPECT_EQ(choose_token(kLogits, config, 0.66), 2);
  EXPECT_EQ(choose_token(kLogits, config, 0.67), 0);
  EXPECT_EQ(choose_token(kLogits, config, 0.999), 0);
  config.top_k = 1000;
  EXPECT_EQ(choose_token(kLogits, config, 0.999), 1);
  config.top_k = 1;
  EXPECT_EQ(choose_token(kLogits, config, 0.999), 2);
}

TEST(ChooseToken, TopPKeepsTheSmallestSetThatReachesItAndAtLeastOne) {
  GenerateConfig config = all_tokens();
  config.top_p = 0.6;  // .5 does not reach this, .5 + .25 does
  EXPECT_EQ(choose_token(kLogits, config, 0.999), 0);
  config.top_p = 1e-9;
  EXPECT_EQ(choose_token(kLogits, config, 0.999), 2);
}

Transformer model_with(std::int64_t positions = 16) {
  return Transformer({.vocab_size = 12, .positions = positions, .width = 16, .layers = 1, .heads = 2}, 9);
}

TEST(WriteTokens, IsAFunctionOfSeedAndPromptAndLeavesTheModelInTraining) {
  Transformer model = model_with();
  model.train();
  GenerateConfig config{.max_length = 40};
  const auto once = write_tokens(model, {4, 5}, config, -1);
  EXPECT_EQ(once.size(), 40U);  // longer than the model's context, so the beginning is cut off
  EXPECT_EQ(write_tokens(model, {4, 5}, config, -1), once);
  config.seed = 1;
  EXPECT_NE(write_tokens(model, {4, 5}, config, -1), once);
  EXPECT_TRUE(model.is_training());
}

TEST(WriteTokens, StopsAtTheEndTokenWithoutWritingIt) {
  Transformer model = model_with();
  const GenerateConfig config{.max_length = 400, .temperature = 3, .top_k = 0, .top_p = 1};
  const auto free = write_tokens(model, {4}, config, -1);
  const auto end = std::find(free.begin(), free.end(), kEnd);
  ASSERT_NE(end, free.end());
  EXPECT_EQ(write_tokens(model, {4}, config, kEnd), std::vector<std::int64_t>(free.begin(), end));
}

TEST(WriteTokens, SeesAtMostTheContextItIsGiven) {
  Transformer model = model_with();
  GenerateConfig config{.max_length = 5, .temperature = 0, .max_context_length = 1};
  EXPECT_EQ(write_tokens(model, {4, 7}, config, -1), write_tokens(model, {9, 7}, config, -1));
}

// A beam search with as many beams as there are texts must find the most likely text; an exhaustive search does too.
TEST(BeamSearch, WideEnoughItFindsTheMostLikelyText) {
  Transformer model({.vocab_size = 4, .positions = 8, .width = 16, .layers = 1, .heads = 2}, 2);
  model.eval();
  torch::NoGradGuard no_grad;
  const std::vector<std::int64_t> prompt = {1, 2};
  const auto log_probability = [&](std::vector<std::int64_t> text) {
    const at::Tensor tokens = torch::tensor(text).unsqueeze(0);
    const at::Tensor logs = torch::log_softmax(model.forward(tokens), -1)[0];
    double sum = 0;
    for (std::size_t i = prompt.size(); i < text.size(); ++i) {
      sum += logs[static_cast<std::int64_t>(i) - 1][text[i]].item<double>();
    }
    return sum;
  };
  double best = -1e9;
  for (std::int64_t a = 0; a < 4; ++a) {
    for (std::int64_t b = 0; b < 4; ++b) {
      for (std::int64_t c = 0; c < 4; ++c) best = std::max(best, log_probability({1, 2, a, b, c}));
    }
  }
  const GenerateConfig config{.max_length = 3, .beam_size = 64};
  const BeamResult found = beam_search(model, prompt, config, -1, 0.0);
  EXPECT_NEAR(found.log_probability, best, 1e-5);
  EXPECT_DOUBLE_EQ(found.score, found.log_probability);
  EXPECT_NEAR(beam_search(model, prompt, config, -1, 0.6).score, best / std::pow(3.0, 0.6), 1e-5);
  EXPECT_EQ(found.tokens.size(), 3U);
}

TEST(BeamSearch, OneBeamIsGreedy) {
  Transformer model = model_with();
  const GenerateConfig config{.max_length = 6, .temperature = 0, .beam_size = 1};
  EXPECT_EQ(beam_search(model, {4, 5}, config, -1).tokens, write_tokens(model, {4, 5}, config, -1));
  EXPECT_LE(beam_search(model, {4, 5}, config, -1).log_probability, 0.0);
}

TEST(BeamSearch, WritesNothingWhenAskedForNothing) {
  Transformer model = model_with();
  const BeamResult nothing = beam_search(model, {4}, GenerateConfig{.max_length = 0}, kEnd);
  EXPECT_TRUE(nothing.tokens.empty());
  EXPECT_EQ(nothing.log_probability, 0.0);
}

}  // namespace
}  // namespace millrace::recipes::language_model
