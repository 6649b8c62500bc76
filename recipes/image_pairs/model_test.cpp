#include "recipes/image_pairs/model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numbers>
#include <tuple>

#include "millrace/config/schema_of.h"
#include "millrace/core/batch.h"
#include "millrace/device/autocast.h"
#include "millrace/memory/block.h"
#include "millrace/optim/optimizer.h"
#include "recipes/image_pairs/entry_parts.h"
#include "recipes/image_pairs/network.h"

namespace millrace::recipes::image_pairs {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

RecipeConfig preset(const std::string& name) {
  Json tree = config::write(RecipeConfig{});
  for (const auto& [known, values] : presets()) {
    if (known != name) continue;
    for (const auto& [key, value] : values.items()) {
      if (key.starts_with("recipe.")) tree[key.substr(7)] = value;
    }
  }
  return config::read<Sections>(Json{{"recipe", tree}}).recipe;
}

RecipeConfig smoke() {
  RecipeConfig config = preset("smoke");
  config.lora_dropout = 0;
  return config;
}

// Three images, used in four rows.
struct Example {
  at::Tensor pixels, images;
  Prompts prompts;
};

Example example(const RecipeConfig& config) {
  torch::manual_seed(3);
  return {at::randn({3, 3, config.image_size, config.image_size}), at::tensor({0, 1, 1, 0, 2, 0, 0, 2}, at::kLong).view({4, 2}),
          to_tensors({prompt_of(config)}, at::kCPU)};
}

at::Tensor logits_of(PairModel& model, const Example& x) { return model.forward(model.features(x.pixels), x.images, x.prompts); }

double largest(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

std::map<Part, std::int64_t> counted(const PairModel& model) {
  std::map<Part, std::int64_t> counts;
  for (const auto& item : model.named_parameters()) counts[part_of(item.key())] += item.value().numel();
  return counts;
}

void expect_counts(const RecipeConfig& config, std::int64_t vision, std::int64_t projector, std::int64_t decoder,
                   std::int64_t lora, at::Device device) {
  const PairModel model(config, 1, true, {}, device, at::kBFloat16);
  EXPECT_THAT(counted(model),
              testing::UnorderedElementsAre(std::pair(Part::vision, vision), std::pair(Part::projector, projector),
                                            std::pair(Part::decoder, decoder), std::pair(Part::lora, lora)));
  const Counts counts = parameter_counts(config);
  EXPECT_EQ(counts.vision, static_cast<double>(vision));
  EXPECT_EQ(counts.projector, static_cast<double>(projector));
  EXPECT_EQ(counts.decoder, static_cast<double>(decoder));
  EXPECT_EQ(counts.lora, static_cast<double>(lora));
}

TEST(PairModelCounts, AreThoseOfTheTable) {
  expect_counts(preset("smoke"), 113'536, 8'320, 134'208, 8'192, at::kCPU);
  expect_counts(preset("small"), 1'829'376, 115'200, 3'298'560, 65'536, at::kMeta);
  EXPECT_EQ(parameter_counts(preset("smoke")).total(), 264'256);
  EXPECT_EQ(parameter_counts(preset("smoke")).trained(true), 16'512);
  EXPECT_EQ(parameter_counts(preset("small")).total(), 5'308'672);
  EXPECT_EQ(parameter_counts(preset("small")).trained(true), 180'736);
}

TEST(PairModelCounts, OfSevenBillionNeedNoMemory) {
  RecipeConfig config = preset("full");
  expect_counts(config, 290'909'184, 20'979'712, 6'738'939'904, 8'388'608, at::kMeta);
  const Counts counts = parameter_counts(config);
  EXPECT_EQ(counts.total(), 7'059'217'408);
  EXPECT_EQ(counts.trained(true), 29'368'320);
  EXPECT_EQ(counts.vision_published, 303'507'456);
  EXPECT_EQ(parameter_counts(preset("original")).total(), 7'059'217'408);
  config.lora_vision = true;
  config.vision_feature_layer = -1;
  EXPECT_EQ(parameter_counts(config).lora - counts.lora, 1'179'648);
  expect_counts(config, 303'507'456 - 2 * 1024, 20'979'712, 6'738'939'904, 8'388'608 + 1'179'648, at::kMeta);
}

TEST(PairPrompt, OfBytesHasTheImagesBeforeTheQuestion) {
  const Prompt prompt = prompt_of(preset("smoke"));
  ASSERT_EQ(prompt.tokens.size(), 43U);
  EXPECT_EQ(prompt.tokens.front(), ByteTokens::kBegin);
  EXPECT_EQ(prompt.first, 1);
  EXPECT_EQ(prompt.second, 17);
  const auto images = prompt.tokens.begin() + 1, text = images + 32;
  EXPECT_THAT(std::vector(images, text), Each(ByteTokens::kImage));
  EXPECT_EQ(std::string(text, prompt.tokens.end()), ", Cleaner?");
  EXPECT_THAT(answers_of(preset("smoke")), ElementsAre(259, 260, 261));
}

TEST(PairPrompt, OfListedTokensTakesAnImageTokenForAllPatches) {
  RecipeConfig config = preset("smoke");
  config.image_token_id = 200;
  config.prompt_token_ids = {1, 200, 7, 8, 200, 9};
  config.answer_token_ids = {3, 4, 5};
  const Prompt prompt = prompt_of(config);
  EXPECT_EQ(prompt.tokens.size(), 36U);
  EXPECT_EQ(prompt.first, 1);
  EXPECT_EQ(prompt.second, 19);
  EXPECT_THAT(answers_of(config), ElementsAre(3, 4, 5));
  config.prompt_token_ids = prompt.tokens;  // the prompt itself, as a list of tokens
  EXPECT_EQ(prompt_of(config).tokens, prompt.tokens);
  EXPECT_EQ(prompt_of(config).second, 19);
}

TEST(PairPrompt, SaysWhatDoesNotFit) {
  RecipeConfig config = preset("smoke");
  config.max_seq_len = 42;
  EXPECT_THAT(prompt_problems(config).front().what, HasSubstr("43 tokens, but at most 42"));
  EXPECT_THROW((void)prompt_of(config), ConfigError);
  config = preset("smoke");
  config.vocab_size = 261;
  EXPECT_THAT(prompt_problems(config).front().what, HasSubstr("byte tokenizer has 262 tokens"));
  config = preset("smoke");
  config.prompt_token_ids = {1, 258, 2};
  EXPECT_THAT(prompt_problems(config).front().where, HasSubstr("answer_token_ids"));
  config.answer_token_ids = {3, 3, 5};
  EXPECT_THAT(prompt_problems(config).front().what, HasSubstr("three different"));
  EXPECT_THAT(prompt_problems(config).back().what, HasSubstr("but two images take"));
  config.answer_token_ids = {3, 4, 999};
  config.prompt_token_ids = {1, 258, 2, 258, -5};
  EXPECT_THAT(prompt_problems(config).front().what, HasSubstr("token 999"));
  EXPECT_THAT(prompt_problems(config).back().what, HasSubstr("token -5"));
}

TEST(PairModelShape, SaysWhatNoNetworkCanHave) {
  const auto problem = [](auto&& change) {
    RecipeConfig config = preset("smoke");
    change(config);
    const auto problems = shape_problems(config);
    return problems.empty() ? "" : problems.front().what;
  };
  EXPECT_EQ(problem([](auto&) {}), "");
  EXPECT_THAT(problem([](auto& c) { c.vision_heads = 5; }), HasSubstr("64 can't be divided among 5 heads"));
  EXPECT_THAT(problem([](auto& c) { c.decoder_heads = 64; }), HasSubstr("width 1 is odd"));
  EXPECT_THAT(problem([](auto& c) { c.patch_size = 9; }), HasSubstr("patches of 9 x 9"));
  EXPECT_THAT(problem([](auto& c) { c.vision_feature_layer = -3; }), HasSubstr("block -3 is not among the 2"));
  EXPECT_THAT(problem([](auto& c) { c.lora_targets = {"out_proj"}; }), HasSubstr("no projection \"out_proj\""));
}

TEST(PairModel, IsAFunctionOfItsSeed) {
  PairModel a(smoke(), 5), b(smoke(), 5), c(smoke(), 6);
  const Example x = example(smoke());
  const at::Tensor logits = logits_of(a, x).detach();
  EXPECT_THAT(logits.sizes().vec(), ElementsAre(4, 3));
  EXPECT_TRUE(at::equal(logits, logits_of(b, x)));
  EXPECT_FALSE(at::equal(logits, logits_of(c, x)));
}

// The filters must respond to each wave with the strength in the formula, and the base behind them must be the same as with other
// filters.
TEST(PairModel, WhitenedFiltersAnswerToFineWavesMost) {
  RecipeConfig config = smoke();
  config.vision_width = 1024;
  config.vision_layers = 1;
  config.patch_init = PatchInit::normal;
  const PairModel normal(config, 5);
  config.patch_init = PatchInit::whitened;
  const PairModel whitened(config, 5);
  const std::string name = "vision_tower.vision_model.embeddings.patch_embedding.weight";
  for (const auto& item : normal.named_parameters())
    EXPECT_EQ(at::equal(item.value(), whitened.named_parameters()[item.key()]), item.key() != name) << item.key();
  const at::Tensor filters = whitened.named_parameters()[name].detach();
  const double pi = std::numbers::pi, side = 8, places = side * side;
  for (const auto& [u, v, scale] : {std::tuple(0, 0, 0.05), {0, 1, 1 / 7.0}, {3, 4, 5 / 7.0}, {7, 0, 1.0}, {6, 7, 1.0}}) {
    const at::Tensor x = at::arange(8, at::kFloat) + 0.5;
    const at::Tensor wave = (x * (pi * u / side)).cos() * (x * (pi * v / side)).cos().unsqueeze(1);
    const at::Tensor answers = (filters * (wave / wave.norm())).sum({2, 3}).flatten();
    EXPECT_NEAR(answers.square().mean().sqrt().item<double>(), scale / std::sqrt(3 * places),
                0.08 * scale / std::sqrt(3 * places))
        << u << " " << v;
  }
}

TEST(PairModel, BeginsAsItWouldWithoutAdapters) {
  RecipeConfig without = smoke();
  without.lora_r = 0;
  PairModel on(smoke(), 5), off(without, 5);
  const Example x = example(without);
  EXPECT_LE(largest(logits_of(on, x), logits_of(off, x)), 1e-6);
}

TEST(PairModel, TrainsExactlyProjectorAndAdaptersOnAFrozenBase) {
  PairModel model(smoke(), 5, true);
  const at::Tensor features = model.features(example(smoke()).pixels);
  EXPECT_FALSE(features.requires_grad());
  std::map<std::string, at::Tensor> before;
  std::vector<optim::NamedParameter> trained;
  for (const auto& item : model.named_parameters()) {
    const bool moves = part_of(item.key()) == Part::lora || part_of(item.key()) == Part::projector;
    EXPECT_EQ(item.value().requires_grad(), moves) << item.key();
    if (moves) trained.push_back({item.key(), item.value()});
    before[item.key()] = item.value().detach().clone();
  }
  optim::Optimizer optimizer({{.parameters = trained}}, {.learning_rate = 1e-2});
  const at::Tensor one = at::tensor(1.0F);
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    logits_of(model, example(smoke())).square().sum().backward();
    for (const auto& item : model.named_parameters())
      EXPECT_EQ(item.value().grad().defined(), item.value().requires_grad()) << item.key();
    optimizer.step(one, one);
  }
  for (const auto& item : model.named_parameters())
    EXPECT_EQ(at::equal(item.value(), before[item.key()]), !item.value().requires_grad()) << item.key();
}

TEST(PairModel, TrainsAllOfItWhereNothingIsFrozen) {
  PairModel model(smoke(), 5);
  logits_of(model, example(smoke())).square().sum().backward();
  for (const auto& item : model.named_parameters()) EXPECT_TRUE(item.value().grad().defined()) << item.key();
}

TEST(PairModel, AdaptersOfTheTowerNeedItsGradients) {
  RecipeConfig config = smoke();
  config.lora_vision = true;
  PairModel model(config, 5, true);
  logits_of(model, example(config)).square().sum().backward();
  std::int64_t of_vision = 0;
  for (const auto& item : model.named_parameters()) {
    EXPECT_EQ(item.value().grad().defined(), item.value().requires_grad()) << item.key();
    of_vision += item.key().starts_with("vision_tower.") && item.value().grad().defined() ? 1 : 0;
  }
  EXPECT_EQ(of_vision, 2 * 3 * 2);
}

TEST(PairModel, ARowIsTheSameBesideALongerOne) {
  RecipeConfig longer = smoke();
  longer.question = "Which of the two is cleaner?";
  for (const bool last_position : {true, false}) {
    PairModel model(smoke(), 5, true, last_position ? nn::Fused() : nn::Fused::without({kLastPosition}));
    const Example x = example(smoke());
    const at::Tensor features = model.features(x.pixels), first = x.images.narrow(0, 0, 1), second = x.images.narrow(0, 2, 1);
    const Prompt of_first = prompt_of(smoke()), of_second = prompt_of(longer);
    const Prompts both = to_tensors({of_first, of_second}, at::kCPU);
    EXPECT_THAT(both.lengths.sizes().vec(), ElementsAre(2));
    const at::Tensor together = model.forward(features, at::cat({first, second}), both);
    EXPECT_LE(largest(together.narrow(0, 0, 1), model.forward(features, first, to_tensors({of_first}, at::kCPU))), 1e-5);
    EXPECT_LE(largest(together.narrow(0, 1, 1), model.forward(features, second, to_tensors({of_second}, at::kCPU))), 1e-5);
  }
}

TEST(PairModel, LooksAtTheImagesThatARowNames) {
  PairModel model(smoke(), 5, true);
  const Example x = example(smoke());
  const at::Tensor features = model.features(x.pixels), shared = model.forward(features, x.images, x.prompts);
  const at::Tensor each = features.index_select(0, x.images.flatten());  // as if the rows had no image in common
  const at::Tensor own = at::tensor({0, 1, 2, 3, 4, 5, 6, 7}, at::kLong).view({4, 2});
  EXPECT_LE(largest(shared, model.forward(each, own, x.prompts)), 1e-6);
  EXPECT_GT(largest(shared.narrow(0, 0, 1), shared.narrow(0, 1, 1)), 1e-4);  // the order of the images must matter
}

// With a frozen tower the features of an image must not depend on the other images of its call.
TEST(PairModel, LooksAtImagesTogetherAsAtEachAlone) {
  PairModel model(smoke(), 5, true);
  const at::Tensor pixels = example(smoke()).pixels, together = model.features(pixels);
  for (std::int64_t i = 0; i < pixels.size(0); ++i) {
    const at::Tensor alone = model.features(pixels.narrow(0, i, 1));
    EXPECT_LE(largest(together.narrow(0, i, 1), alone), 1e-6 * alone.abs().max().item<double>()) << i;
  }
}

// The gradients of a decoder whose blocks are recomputed must equal those of one whose blocks are kept, to the bit.
TEST(PairModel, BlocksCanBeComputedAgain) {
  std::vector<std::string> seen;
  std::map<std::string, at::Tensor> kept;
  for (const char* pattern : {"none", "decoder.layers.*"}) {
    PairModel model(smoke(), 5, true);
    const memory::Recompute recompute({pattern});
    at::Tensor loss;
    {
      const memory::BlockScope scope(recompute, at::kCPU, nullptr, &seen);
      loss = logits_of(model, example(smoke())).square().sum();
    }
    loss.backward();
    for (const auto& item : model.named_parameters()) {
      if (!item.value().requires_grad()) continue;
      const auto [known, is_new] = kept.emplace(item.key(), item.value().grad());
      EXPECT_TRUE(is_new || at::equal(known->second, item.value().grad())) << item.key();
    }
  }
  EXPECT_THAT(seen, testing::Contains("decoder.layers.0"));
  EXPECT_THAT(seen, testing::Contains("decoder.layers.1"));
}

// With frozen weights in 16 bits, the answers must be those of the rounded weights, whatever the number format of the run is.
TEST(PairModel, AFrozenBaseMayBeKeptIn16Bits) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    PairModel kept(smoke(), 5, true, {}, at::kCPU, type), rounded(smoke(), 5, true);
    const at::NoGradGuard no_grad;
    for (auto& item : rounded.named_parameters()) {
      const bool base = !item.value().requires_grad();
      EXPECT_EQ(kept.named_parameters()[item.key()].scalar_type(), base ? type : at::kFloat) << item.key();
      if (base) item.value().copy_(item.value().to(type));
    }
    const Example x = example(smoke());
    EXPECT_LE(largest(logits_of(kept, x), logits_of(rounded, x)), 1e-5);
    const device::Autocast autocast(at::kCPU, at::kBFloat16);
    EXPECT_LE(largest(logits_of(kept, x), logits_of(rounded, x)), 0.05);
  }
}

TEST(PairModel, ProjectionsThatMovedLieSideBySideAgain) {
  std::vector<std::shared_ptr<Projection>> all;
  std::vector<at::Tensor> registered, values;
  for (const std::int64_t out : {3, 5}) {
    all.push_back(std::make_shared<Projection>(Projection::Shape{.in = 4, .out = out, .bias = true}, Making{.frozen = true}));
    for (const at::Tensor& parameter : all.back()->parameters()) {
      registered.push_back(parameter.normal_());
      values.push_back(parameter.clone());
    }
  }
  Projection::put_side_by_side({all[0].get(), all[1].get()});
  for (std::size_t i = 0; i < registered.size(); ++i) EXPECT_TRUE(at::equal(registered[i], values[i])) << i;
  for (const std::size_t i : {0, 1}) {  // weight, bias
    EXPECT_TRUE(registered[i + 2].is_alias_of(registered[i]));
    EXPECT_EQ(registered[i + 2].storage_offset(), registered[i].numel());
    EXPECT_TRUE(registered[i].is_contiguous());
    EXPECT_FALSE(registered[i].requires_grad());
  }
}

}  // namespace
}  // namespace millrace::recipes::image_pairs
