#include "recipes/autoencoder_3d/entry_parts.h"

#include "recipes/common/presets.h"

namespace millrace::recipes::autoencoder_3d {
namespace {

struct Size {
  std::vector<std::int64_t> channels;
  std::int64_t latent_channels, num_res_blocks, groups;
  std::vector<bool> attention;
  bool nonlocal;
  std::int64_t patch;
};

Json network(const Size& size) {
  return {{"recipe.channels", size.channels},
          {"recipe.latent_channels", size.latent_channels},
          {"recipe.num_res_blocks", size.num_res_blocks},
          {"recipe.norm_num_groups", size.groups},
          {"recipe.attention_levels", size.attention},
          {"recipe.with_decoder_nonlocal_attn", size.nonlocal},
          {"recipe.patch_size", {size.patch, size.patch, size.patch}}};
}

Json losses(double learning_rate, double kl_weight, double perceptual_weight) {
  return {
      {"optim.learning_rate", learning_rate}, {"recipe.kl_weight", kl_weight}, {"recipe.perceptual_weight", perceptual_weight}};
}

Json judge(std::int64_t channels, std::int64_t layers) {
  return {{"recipe.disc_channels", channels}, {"recipe.disc_layers", layers}};
}

Json length(std::int64_t epochs, std::int64_t validate_epochs) {
  return {{"train.epochs", epochs}, {"train.validate_epochs", validate_epochs}, {"snapshot.every_epochs", validate_epochs}};
}

Json full() {
  return join({network({{64, 128, 256}, 16, 2, 32, {false, true, true}, true, 64}), losses(5e-4, 1e-8, 1e-4), length(1000, 10)});
}

}  // namespace

Json defaults() {
  return {{"data.batch_size", 2},         {"optim.learning_rate", 5e-4},
          {"optim.betas", {0.5, 0.9}},    {"optim.weight_decay", 1e-5},
          {"optim.clip_norm", 0.5},       {"optim.schedule", "warmup_cosine"},
          {"optim.schedule_by", "epoch"}, {"optim.warmup_steps", 5},
          {"optim.warmup_start", 0.1},    {"optim.min_learning_rate", 1e-6},
          {"optim.lr_scaling", "sqrt"},   {"train.epochs", 1000},
          {"train.validate_epochs", 10},  {"train.seed", 42},
          {"log.train_metrics", true},    {"snapshot.every_epochs", 10}};
}

std::vector<std::pair<std::string, Json>> presets() {
  return {{"smoke", join({network({{8, 16, 32}, 4, 1, 8, {false, false, true}, false, 16}), losses(1e-3, 1e-8, 0), judge(8, 2),
                          length(50, 10)})},
          {"small", join({network({{16, 32, 64}, 8, 1, 8, {false, false, true}, false, 32}), losses(5e-4, 1e-8, 0), judge(16, 3),
                          length(75, 5)})},
          {"stable", join({network({{32, 64, 128}, 8, 1, 16, {false, false, true}, false, 48}),
                           losses(1e-4, 1e-9, 1e-5),
                           length(1000, 5),
                           {{"data.batch_size", 1}}})},
          {"32g", join({network({{64, 128, 256}, 16, 2, 32, {false, false, true}, false, 64}),
                        losses(5e-5, 1e-9, 1e-4),
                        length(1000, 5),
                        {{"data.batch_size", 1}}})},
          {"multigpu", full()},
          {"optimized", join({network({{128, 256, 256}, 16, 2, 32, {false, true, true}, true, 64}),
                              losses(1e-3, 1e-7, 1e-3),
                              length(1000, 10),
                              {{"recipe.recon_loss", "l2"}}})},
          {"full", full()}};
}

}  // namespace millrace::recipes::autoencoder_3d
