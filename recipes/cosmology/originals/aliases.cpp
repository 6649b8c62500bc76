#include "recipes/cosmology/entry_parts.h"

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include "millrace/train/recipe/foreign_options.h"

namespace millrace::recipes::cosmology {
namespace {

// Converts mixed_precision, whose values are no, fp16 and bf16.
Json precision_of(const Json& value) {
  if (value == "no") return "fp32";
  if (value == "fp16" || value == "bf16") return value;
  throw std::invalid_argument("mixed_precision");
}

Json cache_of(const Json& value) { return asks_for_nothing(value) ? "off" : "auto"; }

Json schedule_of(const Json& value) {
  if (value == "none") return "constant";
  if (value == "onecycle") return "one_cycle";
  return value;
}

}  // namespace

std::vector<config::Alias> aliases() {
  std::vector<config::Alias> list;
  const auto add = [&](const std::string& section, const std::string& key, const std::string& path,
                       std::function<Json(const Json&)> convert, const std::string& note = "as in the original's JSON") {
    list.push_back({section + "." + key, path, std::move(convert), note});
  };
  const auto model = [&](const std::string& key, const std::string& path, std::function<Json(const Json&)> convert = nullptr) {
    add("model_params", key, path, std::move(convert));
  };
  const auto training = [&](const std::string& key, const std::string& path, std::function<Json(const Json&)> convert = nullptr) {
    add("training_params", key, path, std::move(convert));
  };
  for (const char* key : {"filters", "act", "loss", "n_fg"}) model(key, std::string("recipe.") + key);
  model("noiseamp", "recipe.noise_amp");
  model("pca_components_path", "recipe.pca_components_path", [](const Json& value) { return value; });  // null means that no path
                                                                                                        // is given
  model("model_dir", "run.parent");
  model("model_name", "run.name");
  list.push_back(accepted_text("model_params.model_path", "model_dir is the folder of the runs"));
  list.push_back(accepted_text("model_params.load_dir", "a run is resumed in its own folder"));
  add("model_params", "gal_mask", "recipe.ra_keep", nullptr);
  add("model_params", "split", "recipe.split", nullptr);
  add("model_params", "SCALING", "recipe.scale", nullptr);
  list.push_back({"model_params.model_version", "", nullptr, "Millrace has only network v1"});
  list.push_back(accepted_text("model_params.learning_rate", "the original trains at training_params.learning_rate"));
  training("cosmopath", "recipe.signal_dir");
  training("galpath", "recipe.foreground_dir");
  for (const char* key : {"add_noise", "num_train", "target_transform", "predict_residual"})
    training(key, std::string("recipe.") + key);
  training("ra_shift_aug", "recipe.ra_shift");
  training("batch_size", "data.batch_size");
  for (const char* key : {"train_num_workers", "num_workers"}) training(key, "data.workers");
  list.push_back(accepted_word("training_params.val_num_workers", "validation has its own readers, as many as it needs"));
  training("prefetch_factor", "data.prefetch");
  add("training_params", "use_cache", "data.cache", cache_of, "true = auto, false = off");
  for (const char* key : {"set_use_cache", "save_cache", "load_cache"})
    list.push_back(accepted_word(std::string("training_params.") + key, "use_cache decides; the cache lasts for the whole run"));
  training("optimizer", "optim.name");
  training("learning_rate", "optim.learning_rate");
  training("weight_decay", "optim.weight_decay");
  training("gradient_clip", "optim.clip_value");
  training("lr_schedule", "optim.schedule", schedule_of);
  training("warmup_frac", "optim.warmup_frac");
  training("grad_accum_steps", "optim.accumulate");
  training("ema_decay", "optim.ema_decay");
  training("epochs", "train.epochs");
  training("seed", "train.seed");
  training("early_stopping_patience", "train.early_stop_patience");
  training("early_stopping_min_delta", "train.early_stop_delta");
  add(
      "training_params", "load_model", "train.resume", [](const Json& value) { return is_true(value) ? Json("auto") : Json(); },
      "true = resume the run in the run folder");
  training("mixed_precision", "precision.dtype", precision_of);
  training("use_grad_checkpoint", "memory.recompute", [](const Json& value) {
    return is_true(value) ? Json{"layer1", "layer2", "layer3", "layer4", "layer5", "layer6"} : Json{"none"};
  });
  list.push_back(accepted_word("training_params.use_compile", "there is nothing to compile; the kernels are fused already"));
  list.push_back(accepted_text("training_params.compile_mode", "there is nothing to compile"));
  for (const char* key : {"signal_dir", "foreground_dir"}) list.push_back({key, std::string("recipe.") + key, nullptr, ""});
  return list;
}

}  // namespace millrace::recipes::cosmology
