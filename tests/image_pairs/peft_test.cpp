// Our files read by transformers and PEFT, and their files read by us: the answers are the same.
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "millrace/config/schema_of.h"
#include "millrace/snapshot/snapshot.h"
#include "recipes/image_pairs/originals/adapters.h"
#include "recipes/image_pairs/originals/base_weights.h"
#include "tests/support/peer.h"

namespace millrace::recipes::image_pairs {
namespace {

namespace stdfs = std::filesystem;

RecipeConfig tiny() {
  RecipeConfig recipe;
  recipe.question = "Cleaner?";
  recipe.image_size = 32;
  recipe.patch_size = 8;
  recipe.vision_width = 32;
  recipe.vision_layers = 3;
  recipe.vision_heads = 4;
  recipe.vision_hidden = 64;
  recipe.decoder_width = 48;
  recipe.decoder_layers = 2;
  recipe.decoder_heads = 4;
  recipe.decoder_hidden = 80;
  recipe.vocab_size = ByteTokens::kSize;
  recipe.lora_r = 4;
  recipe.lora_alpha = 6;
  return recipe;
}

class PairPeft : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    const stdfs::path root = MILLRACE_SOURCE_DIR;
    if (!stdfs::exists(root / ".deps/venv/bin/python")) GTEST_SKIP() << "no Python environment in .deps/venv";
    recipe_.lora_vision = GetParam();
    if (GetParam()) recipe_.lora_targets = {"q_proj", "v_proj", "gate_proj", "down_proj"};
    folder_ = stdfs::current_path() / (GetParam() ? "image_pairs_peft_vision" : "image_pairs_peft");
    stdfs::remove_all(folder_);
    stdfs::create_directories(folder_);
    torch::manual_seed(3);
    write_base();
    pixels_ = at::randn({4, 3, 32, 32});
    images_ = at::tensor({0, 1, 2, 3}, at::kLong).view({2, 2});
    prompts_ = to_tensors({prompt_of(recipe_)}, at::kCPU);
    snapshot::write_tensors(Fs::real(), folder_ / "batch.safetensors",
                            {{"pixels", pixels_}, {"tokens", prompts_.tokens.repeat({2, 1})}});
    std::ofstream(folder_ / "config.json") << config::write(recipe_).dump();
  }

  // All blocks and the norm behind them, as published files have them.
  void write_base() {
    RecipeConfig all = recipe_;
    all.vision_feature_layer = -1;
    all.lora_r = 0;
    Tensors tensors;
    for (const auto& item : PairModel(all, 1).named_parameters())
      tensors[item.key()] = (item.value() + at::randn_like(item.value()) * 0.05).detach();
    tensors["vision_tower.vision_model.post_layernorm.weight"] = at::ones({recipe_.vision_width});
    tensors["vision_tower.vision_model.post_layernorm.bias"] = at::zeros({recipe_.vision_width});
    stdfs::create_directories(folder_ / "base");
    snapshot::write_tensors(Fs::real(), folder_ / "base/model.safetensors", tensors, {{"format", "pt"}});
  }

  std::unique_ptr<PairModel> model_of(const std::string& base) const {
    RecipeConfig recipe = recipe_;
    recipe.base_weights = {(folder_ / base).string()};
    auto model = std::make_unique<PairModel>(recipe, 2, true);
    (void)load_base(*model, recipe);
    model->eval();
    return model;
  }

  at::Tensor answers(PairModel& model) const {
    const at::NoGradGuard no_grad;
    return model.forward(model.features(pixels_), images_, prompts_);
  }

  RecipeConfig recipe_ = tiny();
  stdfs::path folder_;
  at::Tensor pixels_, images_;
  Prompts prompts_;
};

TEST_P(PairPeft, ReadsOursAndWritesTheirsWithTheSameAnswers) {
  const auto model = model_of("base");
  std::map<std::string, at::Tensor> ours = {{"base", answers(*model)}};
  {
    const at::NoGradGuard no_grad;
    for (auto& item : model->named_parameters()) {
      if (item.value().requires_grad()) item.value().add_(at::randn_like(item.value()) * 0.1);
    }
  }
  ours["adapter"] = ours["merged"] = answers(*model);
  (void)write_adapter(Fs::real(), *model, recipe_, folder_ / "adapter");
  (void)merge_adapters(Fs::real(), *model, recipe_, folder_ / "merged", 20'000);
  EXPECT_TRUE(stdfs::exists(folder_ / "merged/model.safetensors.index.json"));

  const int status =
      test::run_peer(stdfs::path(MILLRACE_SOURCE_DIR) / "tests/image_pairs/peft_peer.py", {folder_.string()},
                     {.said = folder_ / "peer.log", .modules = {"transformers.models.llava.modeling_llava", "peft"}});
  if (status == 77) GTEST_SKIP() << "transformers or PEFT is not installed in .deps/venv";
  ASSERT_EQ(status, 0) << "what Python said is in " << folder_ / "peer.log";
  const Tensors theirs = snapshot::read_tensors(folder_ / "logits.safetensors");

  const auto read = model_of("their_base");
  EXPECT_LE((answers(*read) - ours["base"]).abs().max().item<double>(), 1e-6);
  (void)read_adapter(*read, folder_ / "their_adapter");
  ours["theirs"] = answers(*read);
  for (const auto& [name, logits] : ours) {
    const double apart = (logits - theirs.at(name)).abs().max().item<double>();
    EXPECT_LE(apart, 1e-5 * theirs.at(name).abs().max().item<double>()) << name;
  }
  EXPECT_GT((ours["adapter"] - ours["base"]).abs().max().item<double>(), 1e-2);
  EXPECT_GT((ours["theirs"] - ours["base"]).abs().max().item<double>(), 1e-2);
}

INSTANTIATE_TEST_SUITE_P(Adapters, PairPeft, ::testing::Bool(),
                         [](const auto& row) { return std::string(row.param ? "of_both_towers" : "of_the_decoder"); });

}  // namespace
}  // namespace millrace::recipes::image_pairs
