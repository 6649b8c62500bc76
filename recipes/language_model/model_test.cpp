#include "recipes/language_model/model.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "millrace/base/error.h"

namespace millrace::recipes::language_model {
namespace {

ModelConfig tiny(Attention attention = Attention::causal) {
  return {.vocab_size = 20,
          .positions = 32,
          .width = 32,
          .layers = 2,
          .heads = 2,
          .embedding_dropout = 0,
          .attention_dropout = 0,
          .residual_dropout = 0,
          .attention = attention};
}

at::Tensor random_tokens(std::int64_t batch, std::int64_t length, std::int64_t vocab_size = 20) {
  torch::manual_seed(3);
  return at::randint(1, vocab_size, {batch, length}, at::kLong);
}

double largest(const at::Tensor& difference) { return difference.abs().max().item<double>(); }

TEST(Model, ParameterCountsOfAllPresets) {
  struct Row {
    std::int64_t width, layers, heads, positions, vocab_size, parameters;
  };
  for (const Row& row :
       {Row{64, 2, 2, 64, 20, 101'376}, Row{128, 4, 4, 64, 260, 826'624}, Row{128, 4, 4, 128, 43, 798'848},
        Row{384, 6, 6, 512, 43, 10'664'064}, Row{768, 12, 12, 1024, 43, 85'089'024}, Row{768, 12, 12, 1024, 69, 85'108'992},
        Row{1024, 24, 16, 2048, 69, 302'382'080}, Row{1536, 6, 12, 512, 69, 170'098'176},
        Row{768, 12, 12, 1024, 50257, 123'653'376}, Row{1024, 24, 16, 1024, 50257, 353'774'592},
        Row{1280, 36, 20, 1024, 50257, 772'719'360}, Row{128, 2, 4, 128, 40, 401'920}}) {
    const ModelConfig config{
        .vocab_size = row.vocab_size, .positions = row.positions, .width = row.width, .layers = row.layers, .heads = row.heads};
    EXPECT_EQ(parameter_count(config), row.parameters);
    const Transformer model(config, 0, {}, at::kMeta);  // it has shapes but takes no memory
    std::int64_t made = 0;
    for (const at::Tensor& parameter : model.parameters()) made += parameter.numel();
    EXPECT_EQ(made, row.parameters) << row.width << " wide";
    EXPECT_TRUE(model.buffers().empty());
  }
  EXPECT_EQ(parameter_count({.vocab_size = 0, .width = 768, .layers = 1}) - 2 * 768, 7'087'872);
}

TEST(Model, UntiedAndLearnedPositionsAddTheirTables) {
  ModelConfig config = tiny();
  config.tied = false;
  config.learned_positions = true;
  const Transformer model(config);
  std::int64_t made = 0;
  for (const at::Tensor& parameter : model.parameters()) made += parameter.numel();
  EXPECT_EQ(made, parameter_count(config));
  EXPECT_EQ(made, parameter_count(tiny()) + 20 * 32 + 32 * 32);
}

TEST(Model, ParametersCarryTheOriginalsNames) {
  ModelConfig config = tiny();
  config.layers = 1;
  std::vector<std::string> names;
  for (const auto& named : Transformer(config).named_parameters()) names.push_back(named.key());
  const std::string block = "transformer_blocks.0.";
  EXPECT_THAT(names, ::testing::UnorderedElementsAre(
                         "token_embeddings.embedding.weight", block + "ln1.weight", block + "ln1.bias",
                         block + "attention.w_q.weight", block + "attention.w_q.bias", block + "attention.w_k.weight",
                         block + "attention.w_k.bias", block + "attention.w_v.weight", block + "attention.w_v.bias",
                         block + "attention.w_o.weight", block + "attention.w_o.bias", block + "ln2.weight", block + "ln2.bias",
                         block + "feed_forward.fc1.weight", block + "feed_forward.fc1.bias", block + "feed_forward.fc2.weight",
                         block + "feed_forward.fc2.bias", "ln_f.weight", "ln_f.bias"));
}

TEST(Model, WeightsAreAFunctionOfTheSeed) {
  const auto weight = [](std::uint64_t seed) { return Transformer(tiny(), seed).parameters().front().detach(); };
  EXPECT_TRUE(at::equal(weight(1), weight(1)));
  EXPECT_FALSE(at::equal(weight(1), weight(2)));
  ModelConfig wide = tiny();
  wide.width = 256;
  for (const auto& named : Transformer(wide).named_parameters()) {
    const at::Tensor value = named.value().detach();
    if (value.dim() == 2) {
      EXPECT_NEAR(value.std().item<double>(), 0.02, 0.001) << named.key();
      EXPECT_NEAR(value.mean().item<double>(), 0.0, 0.001) << named.key();
    } else {
      EXPECT_EQ(largest(value - (named.key().ends_with("bias") ? 0 : 1)), 0) << named.key();
    }
  }
}

TEST(Model, ImpossibleShapesAreRefused) {
  ModelConfig config = tiny();
  config.width = 33;
  try {
    const Transformer model(config);
    FAIL();
  } catch (const ConfigError& error) {
    ASSERT_EQ(error.problems().size(), 2U);
    EXPECT_EQ(error.problems()[0].what, "a width of 33 can't be divided among 2 heads");
    EXPECT_EQ(error.problems()[1].what, "a width of 33 is odd: positions are pairs of sine and cosine");
  }
}

// The three attention paths must give the same logits, with and without each fused kernel.
TEST(Model, AttentionPathsAgree) {
  const at::Tensor tokens = random_tokens(3, 29);
  torch::NoGradGuard no_grad;
  for (const bool on : {true, false}) {
    const nn::Fused fused = on ? nn::Fused() : nn::Fused::plain();
    const auto logits = [&](Attention attention) {
      Transformer model(tiny(attention), 1, fused);
      model.eval();
      return model.forward(tokens);
    };
    const at::Tensor causal = logits(Attention::causal);
    EXPECT_LE(largest(causal - logits(Attention::explicit_)), 1e-5);
    EXPECT_LE(largest(causal - logits(Attention::math)), 1e-5);
  }
}

TEST(Model, LaterTokensLeaveEarlierLogitsUntouched) {
  torch::NoGradGuard no_grad;
  for (const Attention attention : {Attention::causal, Attention::explicit_, Attention::math}) {
    Transformer model(tiny(attention), 1);
    model.eval();
    const at::Tensor tokens = random_tokens(2, 24);
    at::Tensor changed = tokens.clone();
    changed.narrow(1, 13, 11).fill_(5);
    const at::Tensor before = model.forward(tokens);
    const at::Tensor after = model.forward(changed);
    EXPECT_TRUE(at::equal(before.narrow(1, 0, 13), after.narrow(1, 0, 13)));
    EXPECT_FALSE(at::equal(before.narrow(1, 13, 11), after.narrow(1, 13, 11)));
  }
}

TEST(Model, PaddingHidesTokensAndRowsWithoutAnyAreZeroNotNan) {
  torch::NoGradGuard no_grad;
  Transformer model(tiny(), 1);
  model.eval();
  const at::Tensor tokens = random_tokens(2, 16);
  at::Tensor padding = at::ones({2, 16}, at::kBool);
  const at::Tensor plain = model.forward(tokens);
  EXPECT_LE(largest(plain - model.forward(tokens, padding)), 1e-5);
  padding[1].narrow(0, 10, 6).fill_(false);  // padding at the end, which earlier rows do not see anyway
  EXPECT_LE(largest((plain - model.forward(tokens, padding)).narrow(1, 0, 10)), 1e-5);
  padding[1].narrow(0, 0, 4).fill_(false);  // padding at the start, so rows 0 to 3 have no position to attend to
  const at::Tensor logits = model.forward(tokens, padding);
  EXPECT_FALSE(logits.isnan().any().item<bool>());
  at::Tensor other = tokens.clone();
  other[1].narrow(0, 0, 4).fill_(7);
  EXPECT_LE(largest((logits - model.forward(other, padding))[1].narrow(0, 4, 6)), 1e-6);
}

TEST(Model, MaskCacheBelongsToTheExplicitPath) {
  torch::NoGradGuard no_grad;
  ModelConfig config = tiny(Attention::explicit_);
  config.positions = 128;
  Transformer model(config, 1);
  EXPECT_EQ(model.mask_cache_size(), 0U);
  model.forward(random_tokens(1, 64));
  EXPECT_EQ(model.mask_cache_size(), 1U);
  EXPECT_EQ(model.mask_cache_bytes(), 64 * 64);
  const void* storage = model.causal_mask(64, at::kCPU).data_ptr();
  model.forward(random_tokens(1, 64));
  EXPECT_EQ(model.causal_mask(64, at::kCPU).data_ptr(), storage);
  model.forward(random_tokens(1, 128));
  EXPECT_EQ(model.mask_cache_size(), 2U);
  EXPECT_NE(model.causal_mask(64, at::kMeta).device(), at::Device(at::kCPU));
  EXPECT_EQ(model.mask_cache_size(), 3U);  // a mask for each device
  model.clear_mask_cache();
  EXPECT_EQ(model.mask_cache_size(), 0U);
  EXPECT_EQ(model.mask_cache_bytes(), 0);

  Transformer plain(tiny(), 1);
  plain.forward(random_tokens(1, 32));
  EXPECT_EQ(plain.mask_cache_size(), 0U);
}

TEST(Model, MaskCacheIsBoundedAndLeftBehindByAMove) {
  MaskCache cache;
  const at::Tensor first = cache.causal(1, at::kCPU);
  for (std::int64_t length = 1; length <= 20; ++length) cache.causal(length, at::kCPU);
  EXPECT_EQ(cache.size(), MaskCache::kCapacity);
  EXPECT_NE(cache.causal(1, at::kCPU).data_ptr(), first.data_ptr());  // the oldest mask was dropped
  EXPECT_TRUE(at::equal(cache.causal(3, at::kCPU).to(at::kInt), at::ones({3, 3}, at::kInt).tril()));

  Transformer model(tiny(Attention::explicit_), 1);
  model.forward(random_tokens(1, 8));
  model.to(at::Device(at::kCPU));
  EXPECT_EQ(model.mask_cache_size(), 0U);
}

TEST(Model, UntrainedLossIsThatOfAUniformGuess) {
  torch::NoGradGuard no_grad;
  ModelConfig config = tiny();
  config.vocab_size = 43;
  config.width = 64;
  config.embedding_scale = false;
  Transformer model(config, 4);
  const at::Tensor tokens = random_tokens(8, 33, 43);
  const auto [sum, count] = nn::cross_entropy_sum(model.forward(tokens.narrow(1, 0, 32)), tokens.narrow(1, 1, 32), 0, {});
  EXPECT_NEAR((sum / count).item<double>(), std::log(43.0), 0.05);
}

// Sums and counts add up over micro-batches of unequal size; means would not.
TEST(Model, MicroBatchesWithPaddingEqualOneBatch) {
  at::Tensor tokens = random_tokens(4, 25);
  tokens[3].narrow(0, 9, 16).zero_();
  const auto gradients = [&](std::int64_t rows) {
    Transformer model(tiny(), 1);
    double total = 0;
    for (std::int64_t first = 0; first < 4; first += rows) {
      const at::Tensor part = tokens.narrow(0, first, rows);
      const auto [sum, count] = nn::cross_entropy_sum(model.forward(part.narrow(1, 0, 24)), part.narrow(1, 1, 24), 0, {});
      sum.backward();
      total += count.item<double>();
    }
    EXPECT_EQ(total, 4 * 24 - 16);
    std::vector<at::Tensor> result;
    for (const at::Tensor& parameter : model.parameters()) result.push_back(parameter.grad() / total);
    return result;
  };
  const auto whole = gradients(4);
  const auto parts = gradients(2);
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_LE(largest(whole[i] - parts[i]), 1e-5);
}

TEST(Model, DropoutIsDrawnInTrainingOnlyAndRepeatsWithItsKey) {
  ModelConfig config = tiny();
  config.embedding_dropout = config.attention_dropout = config.residual_dropout = 0.2;
  Transformer model(config, 1);
  const at::Tensor tokens = random_tokens(2, 16);
  const auto run = [&](std::uint64_t seed) {
    torch::manual_seed(seed);
    return model.forward(tokens).detach();
  };
  EXPECT_TRUE(at::equal(run(1), run(1)));
  EXPECT_FALSE(at::equal(run(1), run(2)));
  model.eval();
  EXPECT_TRUE(at::equal(run(1), run(2)));
}

}  // namespace
}  // namespace millrace::recipes::language_model
