// Our network against the same one in Python torch 2.11: same weights, same batch.
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "millrace/config/schema_of.h"
#include "millrace/optim/optimizer.h"
#include "millrace/snapshot/snapshot.h"
#include "recipes/image_pairs/loss.h"
#include "recipes/image_pairs/model.h"
#include "tests/support/parity.h"
#include "tests/support/peer.h"

namespace millrace::recipes::image_pairs {
namespace {

constexpr double kConsistency = 5;  // parity.py has the same
constexpr int kSteps = 20;

struct Case {
  std::string name;
  RecipeConfig recipe;
  bool frozen = true;
  std::vector<std::string> questions;  // of the rows in turn; empty: recipe.question of all
  bool plain = false;
};

RecipeConfig smoke() {
  RecipeConfig recipe;
  recipe.question = "Cleaner?";
  recipe.image_size = 32;
  recipe.patch_size = 8;
  recipe.vision_width = 64;
  recipe.vision_layers = 2;
  recipe.vision_heads = 4;
  recipe.vision_hidden = 256;
  recipe.vision_feature_layer = -1;
  recipe.decoder_width = 64;
  recipe.decoder_layers = 2;
  recipe.decoder_heads = 4;
  recipe.decoder_hidden = 176;
  recipe.vocab_size = ByteTokens::kSize;
  recipe.lora_dropout = 0;
  recipe.swap_ce_weight = 0.7;
  return recipe;
}

RecipeConfig small() {
  RecipeConfig recipe = smoke();
  recipe.image_size = 64;
  recipe.vision_width = 192;
  recipe.vision_layers = 4;
  recipe.vision_heads = 6;
  recipe.vision_hidden = 768;
  recipe.decoder_width = 256;
  recipe.decoder_layers = 4;
  recipe.decoder_heads = 8;
  recipe.decoder_hidden = 688;
  return recipe;
}

std::vector<Case> cases() {
  std::vector<Case> all = {{.name = "smoke", .recipe = smoke()}};
  Case block{.name = "one_block", .recipe = smoke()};
  block.recipe.vision_layers = block.recipe.decoder_layers = 1;
  block.recipe.vision_activation = Activation::gelu_pytorch_tanh;
  all.push_back(block);
  Case padded{.name = "padded", .recipe = smoke(), .questions = {"Cleaner?", "Which of the two is cleaner?"}};
  padded.recipe.vision_layers = 3;
  padded.recipe.vision_feature_layer = -2;
  padded.recipe.lora_vision = true;
  padded.recipe.vision_activation = Activation::gelu;
  padded.recipe.lora_r = 3;
  padded.recipe.lora_targets = {"q_proj", "v_proj", "gate_proj", "up_proj", "down_proj"};
  all.push_back(padded);
  all.push_back({.name = "unfrozen", .recipe = smoke(), .frozen = false});
  all.push_back({.name = "small", .recipe = small()});
  for (std::size_t i : {0U, 2U, 3U}) {
    all.push_back(all[i]);
    all.back().name += "_plain";
    all.back().plain = true;
  }
  return all;
}

// A key's bias adds the same to all scores of a query: its gradient is rounding, and so is where an optimiser takes it.
bool matters(const std::string& name) { return !name.ends_with("k_proj.bias"); }

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class PairParity : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const std::filesystem::path root = MILLRACE_SOURCE_DIR;
    if (!std::filesystem::exists(root / ".deps/venv/bin/python")) GTEST_SKIP() << "no Python environment in .deps/venv";
    const Case& c = GetParam();
    folder_ = std::filesystem::current_path() / ("image_pairs_parity_" + c.name);
    std::filesystem::create_directories(folder_);
    model_ = std::make_unique<PairModel>(c.recipe, 7, c.frozen, c.plain ? nn::Fused::plain() : nn::Fused());
    torch::manual_seed(5);
    make_weights();
    make_batch();
    std::ofstream(folder_ / "config.json")
        << Json{{"recipe", config::write(c.recipe)}, {"frozen", c.frozen}, {"places", {prompts_.first, prompts_.second}}}.dump();
    std::string given = std::to_string(kSteps);
    std::vector<std::string> words;
    for (const char* file : {"config.json", "weights.safetensors", "batch.safetensors"}) {
      words.push_back((folder_ / file).string());
      given += Fs::real().read_file(folder_ / file);
    }
    words.push_back((folder_ / "out.safetensors").string());
    words.push_back(std::to_string(kSteps));
    static std::map<std::string, Tensors> answers;  // a plain network is given the same as the one with fused kernels
    Tensors& answer = answers[given];
    if (answer.empty()) {
      ASSERT_EQ(test::run_peer(root / "tests/image_pairs/parity.py", words), 0) << folder_;
      answer = snapshot::read_tensors(folder_ / "out.safetensors");
    }
    theirs_ = answer;
  }

  // None at a symmetric place, such as zero, where a gradient is rounding alone.
  void make_weights() {
    const at::NoGradGuard no_grad;
    for (auto& item : model_->named_parameters()) {
      if (item.value().dim() == 1 || item.key().ends_with("lora_B.weight")) item.value().add_(at::randn_like(item.value()) * 0.1);
      weights_[item.key()] = item.value().detach().clone();
    }
    snapshot::write_tensors(Fs::real(), folder_ / "weights.safetensors", weights_);
  }

  // Six images, four pairs in both orders.
  void make_batch() {
    const RecipeConfig& recipe = GetParam().recipe;
    std::vector<Prompt> prompts = {prompt_of(recipe)};
    if (const auto& questions = GetParam().questions; !questions.empty()) {
      prompts.clear();
      for (std::size_t row = 0; row < 8; ++row) {
        RecipeConfig of_row = recipe;
        of_row.question = questions[row % questions.size()];
        prompts.push_back(prompt_of(of_row));
      }
    }
    prompts_ = to_tensors(prompts, at::kCPU);
    batch_["pixels"] = at::randn({6, 3, recipe.image_size, recipe.image_size});
    batch_["images"] = at::tensor({0, 1, 1, 0, 2, 3, 3, 2, 4, 5, 5, 4, 0, 5, 5, 0}, at::kLong).view({8, 2});
    batch_["labels"] = labels_of_rows(at::tensor({0, 1, 2, 2}, at::kLong), true);
    batch_["tokens"] = prompts_.tokens;
    batch_["lengths"] = prompts_.lengths.defined() ? prompts_.lengths : at::full({8}, prompts_.tokens.size(1), at::kLong);
    snapshot::write_tensors(Fs::real(), folder_ / "batch.safetensors", batch_);
  }

  struct Result {
    at::Tensor logits, ce, consistency;
  };
  Result step() {
    for (auto& parameter : model_->parameters()) parameter.mutable_grad() = at::Tensor();
    const RecipeConfig& recipe = GetParam().recipe;
    const auto mean = [](const LossTerm& term) { return term.sum / term.count; };
    Result result{.logits = model_->forward(model_->features(batch_["pixels"]), batch_["images"], prompts_)};
    result.ce = mean(answer_loss(result.logits, batch_["labels"], recipe.similar_weight, recipe.swap_ce_weight, true));
    result.consistency = mean(consistency_loss(result.logits));
    (result.ce + kConsistency * result.consistency).backward();
    return result;
  }

  std::filesystem::path folder_;
  std::unique_ptr<PairModel> model_;
  Prompts prompts_;
  Tensors weights_, batch_, theirs_;
};

TEST_P(PairParity, FeaturesAnswersLossesGradientsAndSteps) {
  const Case& c = GetParam();
  const Result ours = step();
  EXPECT_LE(relative(model_->features(batch_["pixels"]).detach(), theirs_.at("features")), 1e-5);
  EXPECT_LE(relative(ours.logits.detach(), theirs_.at("logits")), 1e-5);
  EXPECT_LE(relative(ours.ce.detach(), theirs_.at("ce")), 1e-5);
  EXPECT_LE(relative(ours.consistency.detach(), theirs_.at("consistency")), 1e-5);
  std::vector<optim::ParameterGroup> groups(2);
  groups[0].learning_rate_scale = 0.1;
  std::size_t trained = 0;
  for (auto& item : model_->named_parameters()) {
    const bool moves = theirs_.contains("grad." + item.key());
    ASSERT_EQ(item.value().grad().defined(), moves) << item.key();
    if (!moves) continue;
    ++trained;
    groups[part_of(item.key()) == Part::projector ? 0 : 1].parameters.push_back({item.key(), item.value()});
    const double apart = relative(item.value().grad(), theirs_.at("grad." + item.key()));
    EXPECT_TRUE(!matters(item.key()) || apart <= 1e-4) << item.key() << " differs by " << apart;
  }
  EXPECT_GT(trained, 0U);
  optim::Optimizer optimizer(groups, {.learning_rate = 1e-3, .weight_decay = 0.1, .clip_norm = 1.0}, !c.plain);
  const at::Tensor one = at::scalar_tensor(1.0F);
  for (int i = 0; i < kSteps; ++i) {
    (void)step();
    optimizer.step(one, one);
  }
  for (const auto& item : model_->named_parameters()) {
    if (!item.value().requires_grad()) {
      EXPECT_TRUE(at::equal(item.value(), weights_.at(item.key()))) << item.key();
    } else if (matters(item.key())) {
      // As a whole: Adam moves a single weight whose gradient is rounding by a full step either way.
      const at::Tensor& theirs = theirs_.at("after." + item.key());
      EXPECT_LE((item.value().detach() - theirs).norm().item<double>(), 1e-3 * theirs.norm().item<double>()) << item.key();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Networks, PairParity, ::testing::ValuesIn(cases()), [](const auto& c) { return c.param.name; });

}  // namespace
}  // namespace millrace::recipes::image_pairs
