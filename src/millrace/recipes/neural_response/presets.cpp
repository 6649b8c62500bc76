#include "millrace/recipes/neural_response/presets.h"

#include <stdexcept>

#include "millrace/train/recipe/foreign_options.h"

namespace millrace::recipes::neural_response {
namespace {

// The core of three stages: first halves all axes, then a wide one with a kernel of 5, then one of 3 with dilation 2.
Json stages(std::int64_t first, std::int64_t second, std::int64_t third, std::int64_t squeeze_second,
            std::int64_t squeeze_third) {
  return {{{"channels", first}, {"stride", 2}},
          {{"channels", second}, {"dropout", 0.1}, {"pool_stride", 2}, {"squeeze", squeeze_second}},
          {{"channels", third},
           {"kernel_size", {3, 3, 3}},
           {"padding", {2, 2, 2}},
           {"dilation", 2},
           {"dropout", 0.2},
           {"pool_stride", 1},
           {"squeeze", squeeze_third}}};
}

Json steps(double learning_rate, std::int64_t max_steps, std::int64_t validate_every, std::int64_t validate_batches) {
  return {{"data.batch_size", 64},      {"optim.learning_rate", learning_rate},   {"train.max_steps", max_steps},
          {"train.epochs", 0},          {"train.validate_every", validate_every}, {"train.validate_batches", validate_batches},
          {"snapshot.every_epochs", 0}, {"snapshot.every_steps", validate_every}};
}

Json join(Json a, const Json& b) {
  a.update(b);
  return a;
}

Json smoke() {
  return join({{"recipe.adapter.grid_size", 21},
               {"recipe.frontend.kernel_size", 8},
               {"recipe.convnet.stages", stages(8, 16, 16, 4, 4)},
               {"recipe.modulator.hidden_dim", 16},
               {"recipe.readout.initial_std", 1.0},  // of a last frame of 5 pixels: the published 5 are of 12
               {"recipe.modulator.beh_emb_dim", 8}},
              steps(3e-3, 400, 100, 8));
}

Json small() {
  return join({{"recipe.adapter.grid_size", 31},
               {"recipe.convnet.stages", stages(8, 32, 32, 8, 16)},
               {"recipe.modulator.hidden_dim", 32},
               {"recipe.readout.initial_std", 1.0}},
              steps(4e-3, 600, 100, 32));
}

// With the guide's figures.
Json full() {
  return {{"data.batch_size", 256},           {"optim.learning_rate", 1e-3}, {"optim.weight_decay", 1e-4},
          {"recipe.steps_per_epoch", 1000},   {"recipe.val_fraction", 0.05}, {"targets.train_it_per_s", 1.5},
          {"targets.validation_it_per_s", 3}, {"targets.gpu_busy", 0.8}};
}

Json predictive() {
  return {{"recipe.modulator.type", "pc"}, {"recipe.convnet.final_activation", "softplus"}, {"recipe.lambda_pred", 0.25}};
}

Json precision_of(const Json& value) {
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (text.starts_with("bf16")) return "bf16";
  if (text.starts_with("16")) return "fp16";
  if (text.starts_with("32")) return "fp32";
  throw std::invalid_argument("precision");
}

Json schedule_of(const Json& value) {
  if (value == "none") return "constant";
  if (value == "cosine_warmup") return "warmup_cosine";
  if (value == "step" || value == "plateau" || value == "cosine") return value;
  throw std::invalid_argument("lr_scheduler");
}

Json format_of(const Json& value) {
  if (value == "uint8" || value == "u8") return "u8";
  if (value == "bfloat16" || value == "bf16") return "bf16";
  if (value == "float32" || value == "fp32") return "fp32";
  throw std::invalid_argument("dset_dtype");
}

}  // namespace

Json defaults() {
  return {{"data.batch_size", 64},
          {"optim.learning_rate", 1e-4},
          {"optim.weight_decay", 1e-5},
          {"optim.clip_norm", 1.0},
          {"optim.decay_factor", 0.5},    // of the original's schedules step and plateau
          {"optim.plateau_patience", 3},  // of its plateau
          {"train.epochs", 100},
          {"train.early_stop_patience", 10},
          {"log.train_metrics", true},  // which sessions were left out of steps
          {"snapshot.best_metric", "val_bps_overall"},
          {"snapshot.best_is", "highest"},
          {"snapshot.best_count", 3}};
}

std::vector<std::pair<std::string, Json>> presets() {
  return {{"smoke", smoke()}, {"smoke_pc", join(smoke(), predictive())},
          {"small", small()}, {"small_pc", join(small(), predictive())},
          {"full", full()},   {"full_pc", join(full(), predictive())}};
}

std::vector<config::Alias> aliases() {
  std::vector<config::Alias> list;
  const std::string as_flag = "as the original's flag";
  const auto add = [&](const char* name, const char* path, std::function<Json(const Json&)> convert = nullptr,
                       const std::string& note = {}) {
    list.push_back({name, path, std::move(convert), note.empty() ? as_flag : note});
  };
  add("model_config", "recipe.model_config");
  add("dataset_configs_path", "recipe.dataset_config");
  add("max_datasets", "recipe.max_datasets");
  add("steps_per_epoch", "recipe.steps_per_epoch");
  add("data.steps_per_epoch", "recipe.steps_per_epoch");
  for (const char* name : {"val_fraction", "data.val_fraction"})
    add(name, "recipe.val_fraction", nullptr, "of each session's validation samples");
  add("core_lr_scale", "recipe.core_lr_scale");
  add("weight_decay", "optim.weight_decay");
  add("lr_scheduler", "optim.schedule", schedule_of, "none, step, plateau, cosine, cosine_warmup");
  add("warmup_epochs", "recipe.warmup_epochs");
  add("early_stopping_patience", "train.early_stop_patience");
  add("early_stopping_min_delta", "train.early_stop_delta");
  add("loss_type", "recipe.loss_type");
  add("lambda_pred", "recipe.lambda_pred");
  add("dset_dtype", "recipe.dset_dtype", format_of, "uint8, bfloat16, float32");
  add("enable_curriculum", "recipe.enable_curriculum");
  add("pretrained_checkpoint", "recipe.pretrained");
  add("freeze_vision", "recipe.freeze_vision");
  add("precision", "precision.dtype", precision_of, "bf16-mixed, 16-mixed, 32");
  add("checkpoint_dir", "run.parent");
  add("experiment_name", "run.name");
  add("ckpt_path", "train.resume");
  list.push_back(accepted_text("project_name", "checkpoint_dir and experiment_name say where the run goes"));
  list.push_back(accepted_word("enable_logging", "a run always logs"));
  return list;
}

}  // namespace millrace::recipes::neural_response
