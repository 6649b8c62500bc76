#include "recipes/autoencoder_3d/model.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "millrace/base/error.h"
#include "millrace/base/finally.h"
#include "millrace/config/schema_of.h"
#include "millrace/snapshot/snapshot.h"
#include "millrace/train/recipe/config.h"
#include "recipes/autoencoder_3d/entry_parts.h"
#include "recipes/autoencoder_3d/loss.h"
#include "recipes/autoencoder_3d/network.h"
#include "recipes/autoencoder_3d/originals/pretrained.h"
#include "recipes/autoencoder_3d/recipe.h"

namespace millrace::recipes::autoencoder_3d {
namespace {

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

std::string first_problem(const RecipeConfig& config) {
  const auto problems = shape_problems(config);
  return problems.empty() ? "" : problems.front().what;
}

TEST(AutoencoderModel, HasThePublishedNumberOfParameters) {
  EXPECT_EQ(autoencoder_parameters(preset("smoke")), 197'913);
  EXPECT_EQ(autoencoder_parameters(preset("small")), 788'113);
  EXPECT_EQ(autoencoder_parameters(preset("stable")), 3'089'473);
  EXPECT_EQ(autoencoder_parameters(preset("32g")), 22'166'273);
  EXPECT_EQ(autoencoder_parameters(preset("multigpu")), 29'776'129);
  EXPECT_EQ(autoencoder_parameters(preset("full")), 29'776'129);
  EXPECT_EQ(autoencoder_parameters(preset("optimized")), 46'925'249);
  EXPECT_EQ(discriminator_parameters(preset("smoke")), 43'529);
  EXPECT_EQ(discriminator_parameters(preset("small")), 697'361);
  EXPECT_EQ(discriminator_parameters(preset("stable")), 2'770'977);
  for (const char* name : {"smoke", "small"}) {
    VolumeGan model(preset(name));
    std::int64_t count = 0, autoencoder = 0;
    for (const auto& parameter : model.parameters()) count += parameter.numel();
    for (const auto& parameter : model.autoencoder().parameters()) autoencoder += parameter.numel();
    EXPECT_EQ(autoencoder, autoencoder_parameters(preset(name)));
    EXPECT_EQ(count, autoencoder + static_cast<std::int64_t>(discriminator_parameters(preset(name))));
  }
}

TEST(AutoencoderModel, ThreeLevelsMakeAVolumeAQuarterOfItsSizeAndBack) {
  VolumeGan model(preset("smoke"));
  const at::Tensor x = at::rand({1, 1, 16, 16, 24});
  const AutoencoderKL::Latent latent = model.autoencoder().encode(x);
  EXPECT_THAT(latent.mean.sizes().vec(), ElementsAre(1, 4, 4, 4, 6));
  EXPECT_GT(latent.deviation.min().item<double>(), 0);
  EXPECT_THAT(model.autoencoder().decode(latent.mean).sizes().vec(), ElementsAre(1, 1, 16, 16, 24));
}

TEST(AutoencoderModel, TheDiscriminatorTakesItsSmallestVolumeAndNoSmaller) {
  for (const std::int64_t layers : {2, 3, 4}) {
    RecipeConfig config = preset("smoke");
    config.disc_layers = layers;
    config.disc_channels = 2;
    const std::int64_t side = smallest_side(config);
    EXPECT_EQ(side, layers == 2 ? 12 : layers == 3 ? 24 : 48);
    PatchDiscriminator discriminator(config);
    auto generator = at::make_generator<at::CPUGeneratorImpl>(3);
    initialise_as_gan(discriminator, generator);
    EXPECT_THAT(discriminator.forward(at::rand({2, 1, side, side, side})).sizes().vec(), ElementsAre(2, 1, 1, 1, 1));
    EXPECT_ANY_THROW((void)discriminator.forward(at::rand({2, 1, side - 1, side - 1, side - 1})));
  }
}

TEST(AutoencoderModel, WeightsAreAFunctionOfTheSeed) {
  VolumeGan one(preset("smoke"), 1), same(preset("smoke"), 1), other(preset("smoke"), 2);
  const auto weight = [](VolumeGan& model) { return model.named_parameters()["encoder.blocks.1.conv1.conv.weight"]; };
  EXPECT_TRUE(weight(one).equal(weight(same)));
  EXPECT_FALSE(weight(one).equal(weight(other)));
  const auto judge = one.named_parameters();
  EXPECT_NEAR(judge["0.conv.weight"].std().item<double>(), 0.02, 0.002);
  EXPECT_EQ(judge["final_conv.conv.bias"].abs().max().item<double>(), 0);
}

TEST(AutoencoderModel, WhatNoNetworkCanHaveIsToldBeforeItIsMade) {
  RecipeConfig config = preset("smoke");
  EXPECT_EQ(first_problem(config), "");
  config.channels = {8, 12, 32};
  EXPECT_EQ(first_problem(config), "12 channels can't be cut into 8 groups of equal size");
  config = preset("smoke");
  config.attention_levels = {true};
  EXPECT_THAT(first_problem(config), HasSubstr("recipe.channels has 3 levels, recipe.attention_levels 1"));
  config = preset("smoke");
  config.patch_size = {16, 18, 16};
  EXPECT_EQ(first_problem(config), "a patch of [16,18,16] can't be halved 2 times");
  config = preset("smoke");
  config.disc_layers = 3;
  EXPECT_THAT(first_problem(config), HasSubstr("too small for a discriminator of 3 layers, which needs sides of at least 24"));
  config.adv_weight = 0;
  EXPECT_EQ(first_problem(config), "") << "there is none";
  EXPECT_FALSE(VolumeGan(config).has_discriminator());
  config.image_channels = 2;
  EXPECT_EQ(first_problem(config), "");
  config.target = Target::label;
  EXPECT_EQ(first_problem(config), "with two channels the network reconstructs image and label, not the label alone");
}

TEST(AutoencoderModel, ATrainedRunDoesNotNeedItsInitialWeights) {
  Sections sections;
  sections.recipe = preset("smoke");
  sections.recipe.pretrained = (std::filesystem::path(testing::TempDir()) / "millrace-no-such-weights.pt").string();
  const RunConfig run;
  Context context;
  context.config = &run;
  EXPECT_THROW((void)Autoencoder3d(sections, context).model(), Error);
  Autoencoder3d trained(sections, context);
  trained.load_state({});
  EXPECT_NO_THROW((void)trained.model());
}

// Without a fused kernel attention keeps a map of all pairs: more than a few thousand voxels are refused with its bytes.
TEST(AutoencoderModel, AttentionWithoutAFusedKernelIsRefusedWithItsBytes) {
  const at::Tensor many = at::zeros({1, kMostMappedTokens + 1, 8}), few = at::zeros({1, 16, 8});
  EXPECT_EQ(self_attention(many, many, many).sizes(), many.sizes());
  at::globalContext().setSDPUseFlash(false);
  const std::string refused = finally(
      [&]() -> std::string {
        EXPECT_EQ(self_attention(few, few, few).sizes(), few.sizes());
        try {
          (void)self_attention(many, many, many);
        } catch (const DeviceError& error) {
          return error.what();
        }
        return "";
      },
      [] { at::globalContext().setSDPUseFlash(true); });
  EXPECT_THAT(refused,
              HasSubstr("attention over 4097 voxels of 8 channels has no fused kernel on this device, and the attention map "
                        "alone would take 67"));
}

// Names as torch.save() of a DistributedDataParallel's state dict has them; a discriminator alone is accepted, half a network is
// not.
TEST(AutoencoderModel, WeightsOfOthersAreTakenUnderMonaisNames) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "millrace-pretrained";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  VolumeGan trained(preset("smoke"), 1), model(preset("smoke"), 2);
  Tensors autoencoder, discriminator;
  for (const auto& item : trained.autoencoder().named_parameters()) autoencoder["module." + item.key()] = item.value().detach();
  for (const auto& item : trained.discriminator().named_parameters()) discriminator[item.key()] = item.value().detach();
  snapshot::write_tensors(Fs::real(), folder / "autoencoder.safetensors", autoencoder);
  EXPECT_THAT(take_pretrained(model, folder), testing::StartsWith("pretrained: autoencoder from "));
  const at::Tensor x = at::rand({1, 1, 16, 16, 16});
  EXPECT_TRUE(model.autoencoder().encode_mean(x).equal(trained.autoencoder().encode_mean(x)));
  EXPECT_FALSE(model.discriminator().forward(x).equal(trained.discriminator().forward(x)));
  snapshot::write_tensors(Fs::real(), folder / "discriminator.safetensors", discriminator);
  EXPECT_THAT(take_pretrained(model, folder), testing::StartsWith("pretrained: autoencoder and discriminator from "));
  EXPECT_TRUE(model.discriminator().forward(x).equal(trained.discriminator().forward(x)));
  discriminator.erase("0.conv.weight");
  snapshot::write_tensors(Fs::real(), folder / "half.safetensors", discriminator);
  EXPECT_THROW((void)take_pretrained(model, folder / "half.safetensors"), SnapshotError);
  snapshot::write_tensors(Fs::real(), folder / "other.safetensors", {{"x", x}});
  EXPECT_THROW((void)take_pretrained(model, folder / "other.safetensors"), SnapshotError);
}

TEST(AutoencoderModel, AConvolutionOfSingleVoxelsIsOneInBothLayouts) {
  Convolution layer({.in = 6, .out = 3, .kernel = 1, .padding = 0});
  at::NoGradGuard no_grad;
  layer.weight().copy_(at::randn({3, 6, 1, 1, 1}));
  layer.bias().copy_(at::randn({3}));
  for (const auto layout : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast3d}) {
    const at::Tensor x = at::randn({2, 6, 3, 4, 5}).contiguous(layout);
    const at::Tensor y = layer.forward(x);
    const at::Tensor expected = at::conv3d(x.to(at::kDouble), layer.weight().to(at::kDouble), layer.bias().to(at::kDouble));
    EXPECT_TRUE(at::allclose(y.to(at::kDouble), expected, 1e-5, 1e-5));
    EXPECT_TRUE(y.is_contiguous(layout)) << "what follows keeps its layout";
  }
}

TEST(AutoencoderLoss, TheDivergenceOfANormalLatentIsNothing) {
  const at::Tensor zero = at::zeros({3, 4, 2, 2, 2}), one = at::ones_like(zero);
  const auto n = static_cast<double>(zero[0].numel());
  const auto value = [](const LossTerm& term) { return (term.sum / term.count).item<double>(); };
  EXPECT_LT(std::abs(value(divergence(zero, one, 0))), 1e-6 * n);
  EXPECT_NEAR(value(divergence(one, one, 0)), n / 2, 1e-4);
}

// With 3d_ldm's clamp to 1000 this term has no gradient almost from the start of training.
TEST(AutoencoderLoss, ALargeDivergenceHasAGradientUnlessItIsClamped) {
  for (const double clamp : {0.0, 1000.0}) {
    at::Tensor mean = at::full({1, 100, 1, 1, 1}, 10.0).set_requires_grad(true);
    const LossTerm term = divergence(mean, at::ones_like(mean).detach(), clamp);
    EXPECT_NEAR(term.sum.item<double>(), clamp > 0 ? 1000 : 5000, 0.1);
    term.sum.backward();
    EXPECT_NEAR(mean.grad().sum().item<double>(), clamp > 0 ? 0 : 1000, 0.1);
  }
}

TEST(AutoencoderLoss, AJudgementIsRightOnItsSideOfAHalf) {
  const at::Tensor logits = at::full({2, 1, 1, 1, 1}, 0.7);
  EXPECT_TRUE(judged_right(logits, 1).all().item<bool>());
  EXPECT_FALSE(judged_right(logits, 0).any().item<bool>());
  EXPECT_NEAR(judgement(logits, 1).sum.item<double>(), 2 * 0.09, 1e-6);
  EXPECT_NEAR(judgement(-logits, 1).sum.item<double>(), 2 * 1.035 * 1.035, 1e-6) << "slope 0.05 below 0";
}

}  // namespace
}  // namespace millrace::recipes::autoencoder_3d
