// The shipped recipes at a size that trains in no time.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <stdexcept>
#include <string>

#include "millrace/base/philox.h"
#include "millrace/data/files/nifti_writer.h"
#include "recipes/autoencoder_3d/make_data.h"
#include "recipes/image_pairs/make_data.h"
#include "recipes/neural_response/make_data.h"
#include "recipes/registry.h"
#include "toys.h"

namespace millrace::small_runs {

// Layouts are given: two runs that are compared must not choose by the clock. Small enough for hundreds of runs: five batches per
// epoch, accumulated by two, make three steps, the last of which is partial.
inline Json small_config(const std::string& recipe) {
  if (recipe == "cosmology") {
    return {{"recipe.ra_keep", 32}, {"recipe.split", 2},           {"recipe.n_fg", 2},
            {"recipe.filters", 2},  {"recipe.num_train", 5},       {"recipe.ra_shift", true},
            {"data.batch_size", 2}, {"recipe.pca_num_samples", 2}, {"device.layout", "contiguous"}};
  }
  if (recipe == "neural_response") {
    const Json stages = {{{"channels", 4}, {"stride", 2}},
                         {{"channels", 6},
                          {"dropout", 0.2},
                          {"pool_stride", 1},
                          {"squeeze", 2},
                          {"kernel_size", {2, 3, 3}},
                          {"padding", {1, 1, 1}}}};
    return {{"recipe.adapter.grid_size", 9},     {"recipe.frontend.kernel_size", 3},
            {"recipe.frontend.num_channels", 2}, {"recipe.convnet.stages", stages},
            {"recipe.modulator.hidden_dim", 4},  {"recipe.modulator.beh_emb_dim", 2},
            {"recipe.steps_per_epoch", 5},       {"data.batch_size", 6},
            {"device.layout", "contiguous"},     {"recipe.enable_curriculum", true}};
  }
  if (recipe == "autoencoder_3d") {  // its discriminator joins in the second epoch
    return {{"recipe.channels", {4, 8}},         {"recipe.attention_levels", {false, true}},
            {"recipe.latent_channels", 2},       {"recipe.num_res_blocks", 1},
            {"recipe.norm_num_groups", 2},       {"recipe.with_decoder_nonlocal_attn", false},
            {"recipe.patch_size", {12, 12, 12}}, {"recipe.disc_channels", 2},
            {"recipe.disc_layers", 2},           {"recipe.adv_start_epoch", 0},
            {"recipe.perceptual_weight", 0},     {"data.batch_size", 2},
            {"device.layout", "contiguous"},     {"log.train_metrics", false}};
  }
  if (recipe == "image_pairs") {
    return {{"recipe.image_size", 16},      {"recipe.patch_size", 8},       {"recipe.vision_width", 8},
            {"recipe.vision_layers", 1},    {"recipe.vision_heads", 2},     {"recipe.vision_hidden", 16},
            {"recipe.decoder_width", 16},   {"recipe.decoder_layers", 2},   {"recipe.decoder_heads", 2},
            {"recipe.decoder_hidden", 24},  {"recipe.vocab_size", 262},     {"recipe.vision_feature_layer", -1},
            {"recipe.question", "?"},       {"recipe.per_class", 3},        {"recipe.folds", 2},
            {"recipe.val_samples", 6},      {"recipe.lora_dropout", 0.2},   {"data.batch_size", 2},
            {"data.drop_last", false},      {"recipe.freeze_base", true},   {"train.early_stop_patience", 0},
            {"optim.schedule", "constant"}, {"recipe.consistency_steps", 9}};
  }
  return {{"recipe.model_embd", 16}, {"recipe.model_layer", 1},     {"recipe.model_head", 2}, {"recipe.model_positions", 16},
          {"recipe.seq_len", 16},    {"recipe.model_dropout", 0.2}, {"data.batch_size", 4}};
}

inline const Entry& entry_of(const std::string& name) {
  for (const Entry& entry : recipes::all()) {
    if (entry.name == name) return entry;
  }
  throw std::out_of_range(name);
}

// Ten pairs to train on and two to validate with, as NIfTI: no checksum notices a changed byte.
inline void write_volumes(const std::filesystem::path& folder) {
  constexpr std::int64_t kSide = 14;
  data::NiftiHeader header;
  header.dtype = DType::f32;
  header.shape = {2, kSide, kSide, kSide};
  for (std::int64_t file = 0; file < 12; ++file) {
    const std::filesystem::path in = folder / (file < 10 ? "train" : "val");
    std::filesystem::create_directories(in);
    const std::vector<float> pair = recipes::autoencoder_3d::sample_pair(kSide, 0, file);
    data::write_nifti(Fs::real(), in / ("v" + std::to_string(10 + file) + ".nii"), header, std::as_bytes(std::span(pair)));
  }
}

// Images with an extra byte behind their end: no checksum notices a change of it.
inline void write_images(const std::filesystem::path& folder) {
  recipes::image_pairs::write_sample_images({.size = 16, .images = 28}, folder, 0);
  for (const auto& entry : std::filesystem::directory_iterator(folder / "images"))
    std::ofstream(entry.path(), std::ios::binary | std::ios::app) << 'z';
}

// Made once per process.
inline const std::filesystem::path& data_of(const std::string& recipe) {
  static std::map<std::string, toys::TemporaryFolder> folders;
  const bool is_new = !folders.contains(recipe);
  const std::filesystem::path& folder = folders[recipe].path();
  if (!is_new) return folder;
  if (recipe == "language_model") {
    Philox random(make_key(5));
    std::ofstream text(folder / "text.txt");
    for (int i = 0; i < 360; ++i) text << static_cast<char>('a' + random.below(9));
  } else if (recipe == "neural_response") {
    recipes::neural_response::write_sample_sessions({.sessions = 2, .units = 4, .bins = 1200, .side = 11, .lags = 6}, folder, 0);
  } else if (recipe == "autoencoder_3d") {
    write_volumes(folder);
  } else if (recipe == "image_pairs") {
    write_images(folder);
  } else {
    entry_of(recipe).make_data("smoke", folder, 0);
  }
  return folder;
}

}  // namespace millrace::small_runs
