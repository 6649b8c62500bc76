// Our networks against the same ones in Python torch 2.11 and, if installed, MONAI: same weights, same batch.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "millrace/config/schema_of.h"
#include "millrace/optim/optimizer.h"
#include "millrace/snapshot/snapshot.h"
#include "recipes/autoencoder_3d/loss.h"
#include "recipes/autoencoder_3d/model.h"
#include "tests/support/parity.h"
#include "tests/support/peer.h"

namespace millrace::recipes::autoencoder_3d {
namespace {

struct Case {
  std::string name;
  RecipeConfig recipe;
  std::int64_t rows = 2, side = 16;
  int steps = 20;
  bool plain = false;
};

RecipeConfig smoke() {
  RecipeConfig recipe;
  recipe.channels = {8, 16, 32};
  recipe.latent_channels = 4;
  recipe.num_res_blocks = 1;
  recipe.norm_num_groups = 4;  // of one channel each they would leave the bias before a norm without a gradient
  recipe.attention_levels = {false, false, true};
  recipe.with_decoder_nonlocal_attn = false;
  recipe.disc_channels = 8;
  recipe.disc_layers = 2;
  recipe.patch_size = {16, 16, 16};
  recipe.kl_weight = 1e-4;  // large enough that a fault of the divergence shows in gradients
  recipe.adv_weight = 0.1;
  return recipe;
}

std::vector<Case> cases() {
  std::vector<Case> all = {{.name = "smoke", .recipe = smoke()}};
  Case everything{.name = "all_attention", .recipe = smoke()};
  everything.recipe.num_res_blocks = 2;
  everything.recipe.attention_levels = {false, true, true};
  everything.recipe.with_encoder_nonlocal_attn = everything.recipe.with_decoder_nonlocal_attn = true;
  everything.recipe.recon_loss = ReconLoss::l2;
  everything.recipe.image_channels = 2;
  all.push_back(everything);
  Case stable{.name = "stable", .recipe = smoke(), .rows = 1, .side = 32, .steps = 1};
  stable.recipe.channels = {32, 64, 128};
  stable.recipe.latent_channels = 8;
  stable.recipe.norm_num_groups = 16;
  stable.recipe.disc_channels = 32;
  stable.recipe.disc_layers = 3;
  stable.recipe.patch_size = {32, 32, 32};
  all.push_back(stable);
  for (std::size_t i : {0U, 1U}) {
    all.push_back(all[i]);
    all.back().name += "_plain";
    all.back().plain = true;
  }
  return all;
}

// A key's bias adds the same to all scores of a query: its gradient is rounding, and so is where an optimiser takes it.
bool matters(const std::string& name) { return !name.ends_with("to_k.bias"); }

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class AutoencoderParity : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(std::filesystem::path(MILLRACE_SOURCE_DIR) / ".deps/venv/bin/python"))
      GTEST_SKIP() << "no Python environment in .deps/venv";
  }

  void begin(std::uint64_t seed) {
    const std::filesystem::path root = MILLRACE_SOURCE_DIR;
    const Case& c = GetParam();
    folder_ = std::filesystem::current_path() / ("autoencoder_3d_parity_" + c.name);
    std::filesystem::create_directories(folder_);
    model_ = std::make_unique<VolumeGan>(c.recipe, 7, c.plain ? nn::Fused::plain() : nn::Fused());
    model_->set_channels_last(!c.plain);
    torch::manual_seed(seed);
    const at::NoGradGuard no_grad;
    Tensors weights;
    for (const auto& named : parameters()) {
      // None at a symmetric place, such as zero, where a gradient is rounding alone.
      if (named.value.dim() == 1) named.value.add_(at::randn_like(named.value) * 0.1);
      weights[named.name] = named.value.detach();
    }
    const std::int64_t image = c.recipe.image_channels, side = c.side;
    batch_["input"] = at::rand({c.rows, image, side, side, side});
    batch_["target"] = at::rand({c.rows, image, side, side, side});
    batch_["eps"] = at::randn({c.rows, c.recipe.latent_channels, side / 4, side / 4, side / 4});
    snapshot::write_tensors(Fs::real(), folder_ / "weights.safetensors", weights);
    snapshot::write_tensors(Fs::real(), folder_ / "batch.safetensors", batch_);
    std::ofstream(folder_ / "config.json") << config::write(c.recipe).dump();
    std::string given = std::to_string(c.steps);
    std::vector<std::string> words;
    for (const char* file : {"config.json", "weights.safetensors", "batch.safetensors"}) {
      words.push_back((folder_ / file).string());
      given += Fs::real().read_file(folder_ / file);
    }
    words.push_back((folder_ / "out.safetensors").string());
    words.push_back(std::to_string(c.steps));
    static std::map<std::string, Tensors> answers;  // a plain network is given the same as the one with fused kernels
    Tensors& answer = answers[given];
    if (answer.empty()) {
      ASSERT_EQ(test::run_peer(root / "tests/autoencoder_3d/parity.py", words, {.said = {}, .modules = {"monai.networks.nets"}}),
                0)
          << folder_;
      answer = snapshot::read_tensors(folder_ / "out.safetensors");
    }
    theirs_ = answer;
  }

  // "autoencoder/encoder.blocks.0.conv.weight" and so on: the network, and MONAI's name.
  std::vector<optim::NamedParameter> parameters() {
    std::vector<optim::NamedParameter> all;
    for (auto& item : model_->autoencoder().named_parameters()) all.push_back({"autoencoder/" + item.key(), item.value()});
    for (auto& item : model_->discriminator().named_parameters()) all.push_back({"discriminator/" + item.key(), item.value()});
    return all;
  }

  struct Result {
    at::Tensor recon, mean, deviation;
    at::Tensor autoencoder, discriminator;  // losses
    std::map<std::string, at::Tensor> terms;
  };

  // Both objectives as the recipe has them, forward and backward; each network keeps the gradients of its own loss.
  Result step() {
    const RecipeConfig& recipe = GetParam().recipe;
    Result result;
    const auto freeze = [&](bool frozen) {
      for (auto& parameter : model_->discriminator().parameters()) parameter.requires_grad_(!frozen);
    };
    for (auto& item : parameters()) item.value.mutable_grad() = at::Tensor();
    freeze(true);
    const AutoencoderKL::Latent latent = model_->autoencoder().encode(batch_["input"]);
    result.recon = model_->autoencoder().decode(latent.mean + latent.deviation * batch_["eps"]);
    result.mean = latent.mean;
    result.deviation = latent.deviation;
    const auto keep = [&](const char* name, const LossTerm& term) { return result.terms[name] = term.sum / term.count; };
    result.autoencoder = keep("recon", reconstruction(result.recon, batch_["target"], recipe.recon_loss)) +
                         recipe.kl_weight * keep("kl", divergence(latent.mean, latent.deviation, 0)) +
                         recipe.adv_weight * keep("adv", judgement(model_->discriminator().forward(result.recon), 1));
    result.autoencoder.backward();
    freeze(false);
    const std::int64_t rows = result.recon.size(0);
    const at::Tensor logits = model_->discriminator().forward(at::cat({result.recon.detach(), batch_["target"]}));
    result.discriminator =
        recipe.adv_weight * 0.5 *
        (keep("fake", judgement(logits.narrow(0, 0, rows), 0)) + keep("real", judgement(logits.narrow(0, rows, rows), 1)));
    result.discriminator.backward();
    return result;
  }

  void outputs_and_terms(const Result& ours) {
    const std::string monai = theirs_.contains("monai.recon") ? "monai." : "";
    for (const std::string& of : {std::string(), monai}) {
      EXPECT_LE(relative(ours.recon.detach(), theirs_.at(of + "recon")), 1e-5) << of;
      EXPECT_LE(relative(ours.mean.detach(), theirs_.at(of + "mu")), 1e-5) << of;
      EXPECT_LE(relative(ours.deviation.detach(), theirs_.at(of + "sigma")), 1e-5) << of;
      const at::NoGradGuard no_grad;
      EXPECT_LE(relative(model_->discriminator().forward(batch_["target"]), theirs_.at(of + "logits")), 1e-5) << of;
    }
    for (const auto& [name, value] : ours.terms) {
      // Where a discriminator's mean stands near zero, Python's own fp32 is further from fp64 than that.
      const at::Tensor& theirs = theirs_.at("term." + name);
      const double rounding = relative(theirs.to(at::kDouble), theirs_.at("exact." + name));
      EXPECT_LE(relative(value.detach(), theirs), std::max(1e-5, 3 * rounding)) << name;
    }
    EXPECT_LE(relative(ours.autoencoder.detach(), theirs_.at("loss.autoencoder")), 1e-5);
    EXPECT_LE(relative(ours.discriminator.detach(), theirs_.at("loss.discriminator")), 1e-5);
  }

  // The first gradient that is not Python's, or "".
  std::string first_other_gradient() {
    std::size_t of_theirs = 0;
    for (const auto& [name, value] : theirs_) of_theirs += name.starts_with("grad.") ? 1 : 0;
    EXPECT_EQ(parameters().size(), of_theirs);
    for (const auto& item : parameters()) {
      if (!item.value.grad().defined()) return item.name + " has no gradient";
      const double apart = relative(item.value.grad(), theirs_.at("grad." + item.name));
      if (matters(item.name) && !(apart <= 1e-4)) return item.name + " differs by " + std::to_string(apart);
    }
    return "";
  }

  void twenty_steps() {
    const optim::OptimConfig config{
        .learning_rate = 1e-4, .betas = {0.5, 0.9}, .eps = 1e-8, .weight_decay = 1e-5, .clip_norm = 0.5};
    std::vector<optim::NamedParameter> own[2];
    for (auto& item : parameters()) own[item.name.starts_with("autoencoder/") ? 0 : 1].push_back(item);
    optim::Optimizer autoencoder({{.parameters = own[0]}}, config, !GetParam().plain);
    optim::Optimizer discriminator({{.parameters = own[1]}}, config, !GetParam().plain);
    const at::Tensor one = at::scalar_tensor(1.0F);
    for (int i = 0; i < GetParam().steps; ++i) {
      (void)step();
      autoencoder.step(one, one);
      discriminator.step(one, one);
    }
    for (const auto& item : parameters()) {
      if (!matters(item.name)) continue;
      // As a whole: Adam moves a single weight whose gradient is rounding by a full step either way.
      const at::Tensor& theirs = theirs_.at("after." + item.name);
      EXPECT_LE((item.value.detach() - theirs).norm().item<double>(), 1e-3 * theirs.norm().item<double>()) << item.name;
    }
  }

  std::filesystem::path folder_;
  std::unique_ptr<VolumeGan> model_;
  Tensors batch_, theirs_;
};

// Gradients of leaky ReLU and of absolute errors jump: where two roundings fall on both sides of a jump, a batch says nothing.
TEST_P(AutoencoderParity, OutputsLossTermsEveryGradientAndTwentySteps) {
  std::string why;
  for (const std::uint64_t seed : {5U, 6U, 7U}) {
    ASSERT_NO_FATAL_FAILURE(begin(seed));
    const Result ours = step();
    outputs_and_terms(ours);
    if (why = first_other_gradient(); why.empty()) break;
  }
  EXPECT_EQ(why, "");
  twenty_steps();
}

INSTANTIATE_TEST_SUITE_P(Networks, AutoencoderParity, ::testing::ValuesIn(cases()), [](const auto& c) { return c.param.name; });

}  // namespace
}  // namespace millrace::recipes::autoencoder_3d
