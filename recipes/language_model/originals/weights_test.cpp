// Tests of AGI2's files without AGI2: the values that they set, and the errors. tests/language_model compares logits.
#include "recipes/language_model/originals/weights.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/base/error.h"
#include "millrace/config/schema_of.h"
#include "millrace/nn/functional.h"
#include "millrace/train/run/run.h"
#include "recipes/language_model/config.h"
#include "recipes/language_model/entry.h"
#include "tests/support/refusal.h"

namespace millrace::recipes::language_model {
namespace {

using ::testing::HasSubstr;

config::Resolved resolved(const std::vector<std::string>& flags = {}) {
  const Entry row = entry();
  const config::Schema schema = schema_of(row);
  config::Layers layers(schema, row.aliases);
  layers.add_values(row.defaults, "recipe");
  layers.add_flags(flags);
  return layers.resolve();
}

Weights file(const Tensors& tensors, const Json& values = {{"config.n_head", 2}}) {
  Weights weights;
  weights.models["model"] = tensors;
  weights.values = values;
  weights.path = "theirs.pt";
  return weights;
}

Tensors tensors() {
  return {{"token_embeddings.embedding.weight", at::zeros({9, 16})},
          {"transformer_blocks.0.ln1.weight", at::zeros({16})},
          {"position_embeddings.pe", nn::sinusoidal_positions(12, 16)}};
}

std::string adoption_refusal(Weights weights, const std::vector<std::string>& flags = {}) {
  config::Resolved config = resolved(flags);
  return refusal([&] { (void)adopt_weights(weights, config); });
}

TEST(OriginalWeights, TheFileDecidesWhatNobodySet) {
  Weights weights = file(tensors());
  config::Resolved config = resolved();
  (void)adopt_weights(weights, config);
  const RecipeConfig recipe = config::read<Sections>(config.values).recipe;
  EXPECT_EQ(recipe.model_embd, 16);
  EXPECT_EQ(recipe.model_layer, 1);
  EXPECT_EQ(recipe.model_head, 2);
  EXPECT_EQ(recipe.model_positions, 12);
  EXPECT_EQ(recipe.seq_len, 13);
  EXPECT_EQ(recipe.vocab_size, 9);
  EXPECT_FALSE(recipe.embedding_scale);
  EXPECT_FALSE(weights.models["model"].contains("position_embeddings.pe"));
  EXPECT_THAT(adoption_refusal(file(tensors()), {"--recipe.model_layer=2"}),
              ::testing::AllOf(HasSubstr("need recipe.model_layer=1 (its blocks), but the key is set to 2"),
                               HasSubstr("flag --recipe.model_layer")));
}

TEST(OriginalWeights, OfOursTheMetadataDecides) {
  Tensors ours = tensors();
  ours.erase("position_embeddings.pe");
  for (const bool scaled : {true, false}) {
    const Json values = {{"config", Json({{"recipe", {{"embedding_scale", scaled}}}}).dump()}};
    Weights weights = file(ours, values);
    config::Resolved config = resolved({"--recipe.model_head=2"});
    EXPECT_TRUE(adopt_weights(weights, config).empty());
    EXPECT_EQ(config.values["recipe"]["embedding_scale"], scaled);
  }
  EXPECT_THAT(adoption_refusal(file(ours, {{"config", "[1, {"}})), HasSubstr("do not say how many heads"));
}

TEST(OriginalWeights, OtherFilesAreRefused) {
  EXPECT_THAT(adoption_refusal(file({})), HasSubstr("has no matrix token_embeddings.embedding.weight"));
  Tensors other = tensors();
  other["position_embeddings.pe"] = other["position_embeddings.pe"] + 0.01;
  EXPECT_THAT(adoption_refusal(file(other)), HasSubstr("is not the table of sinusoids of this model"));
  other["position_embeddings.pe"] = at::zeros({12, 18});
  EXPECT_THAT(adoption_refusal(file(other)), HasSubstr("is not the table of sinusoids of this model"));
  other["position_embeddings.pe"] = at::zeros({0, 16});
  EXPECT_THAT(adoption_refusal(file(other)), HasSubstr("is not the table of sinusoids of this model"));
}

TEST(OriginalWeights, AVocabularyThatIsNoneOfCharactersIsLeftOut) {
  const auto told = [](const Json& words) {
    Json values = {{"config.n_head", 2}};
    for (const auto& [word, id] : words.items()) values["tokenizer.vocab." + word] = id;
    Weights weights = file(tensors(), values);
    config::Resolved config = resolved();
    const std::vector<std::string> lines = adopt_weights(weights, config);
    return lines.back() + (weights.recipe.json.contains("tokenizer") ? " " + weights.recipe.json["tokenizer"].dump() : "");
  };
  EXPECT_THAT(told({{"<PAD>", 0}, {"<UNK>", 1}, {"<BOS>", 2}, {"<EOS>", 3}, {".", 4}, {"a", 5}}), HasSubstr("\".a\""));
  EXPECT_THAT(told({{"<PAD>", 0}, {"<UNK>", 1}, {"<BOS>", 2}, {"<EOS>", 3}, {"b", 4}, {"a", 5}}), HasSubstr("left out: "));
  EXPECT_THAT(told({{"<PAD>", 0}, {"<UNK>", 1}, {"<BOS>", 2}, {"<EOS>", 3}, {"ab", 4}}), HasSubstr("not one of characters"));
  EXPECT_THAT(told({{"<PAD>", 0}, {"a", 5}}), HasSubstr("no token 1"));
}

}  // namespace
}  // namespace millrace::recipes::language_model
