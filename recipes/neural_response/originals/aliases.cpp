#include "recipes/neural_response/entry_parts.h"

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include "millrace/train/recipe/foreign_options.h"

namespace millrace::recipes::neural_response {
namespace {

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
