#include "recipes/autoencoder_3d/entry_parts.h"

#include <string>

#include "millrace/train/recipe/foreign_options.h"

namespace millrace::recipes::autoencoder_3d {
namespace {

using Convert = std::function<Json(const Json&)>;

const std::string kFile = "as in the original's JSON";

// Converts lr_scheduler, whose values are null, cosine and warmup_cosine.
Json schedule_of(const Json& value) { return value.is_null() || value == Json("none") ? Json("constant") : value; }

Json resume_of(const Json& value) { return is_true(value) ? Json("auto") : Json(); }

Json recompute_of(const Json& value) { return is_true(value) ? Json{"all"} : Json{"none"}; }

}  // namespace

std::vector<config::Alias> aliases() {
  std::vector<config::Alias> list;
  const auto network = [&](const std::string& key, const std::string& path, const Convert& convert = nullptr,
                           const std::string& note = kFile) {
    list.push_back({"autoencoder_def." + key, path, convert, note});
  };
  const auto training = [&](const std::string& key, const std::string& path, const Convert& convert = nullptr) {
    list.push_back({"autoencoder_train." + key, path, convert, kFile});
  };
  for (const char* key : {"channels", "latent_channels", "num_res_blocks", "norm_num_groups", "norm_eps", "attention_levels",
                          "with_encoder_nonlocal_attn", "with_decoder_nonlocal_attn"})
    network(key, std::string("recipe.") + key);
  network("num_channels", "recipe.channels", nullptr, "the name in older files");
  network("in_channels", "recipe.image_channels");
  for (const char* key : {"use_checkpoint", "use_checkpointing"}) network(key, "memory.recompute", recompute_of);
  list.push_back(accepted_word("autoencoder_def.use_flash_attention", "the fused kernel is used if there is one"));
  for (const char* key : {"patch_size", "recon_loss", "kl_weight", "perceptual_weight"})
    training(key, std::string("recipe.") + key);
  training("batch_size", "data.batch_size");
  training("lr", "optim.learning_rate");
  training("lr_scheduler", "optim.schedule", schedule_of);
  training("max_epochs", "train.epochs");
  training("val_interval", "train.validate_epochs");

  list.push_back({"npz_dir_train", "recipe.train_dir", nullptr, kFile});
  list.push_back({"npz_dir_val", "recipe.val_dir", nullptr, kFile});
  list.push_back({"npz_dir", "data.dir", nullptr, kFile});
  list.push_back({"val_fraction", "recipe.val_fraction", nullptr, kFile});
  list.push_back({"spacing", "recipe.spacing", nullptr, kFile});
  list.push_back({"model_dir", "run.parent", nullptr, kFile});
  list.push_back({"resume_ckpt", "train.resume", resume_of, "true = resume in the run folder"});
  list.push_back(accepted_text("data_base_dir", "npz_dir, npz_dir_train and npz_dir_val say where volumes are"));
  list.push_back(accepted_text("output_dir", "not used; give encode and decode their output with --out"));
  list.push_back(accepted_text("tfevent_path", "event files are in the run folder"));

  list.push_back({"lr", "optim.learning_rate", nullptr, ""});
  list.push_back({"images", "log.images", nullptr, "--no-images"});
  return list;
}

}  // namespace millrace::recipes::autoencoder_3d
