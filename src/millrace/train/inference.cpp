// A trained model, ready to be used: for predict, eval and the recipes' own commands.
#include <torch/nn/module.h>

#include "millrace/base/error.h"
#include "millrace/config/schema_of.h"
#include "millrace/device/device.h"
#include "millrace/format/safetensors.h"
#include "millrace/snapshot/snapshot.h"
#include "millrace/train/feed.h"
#include "millrace/train/model_state.h"
#include "millrace/train/session.h"

namespace millrace {
namespace {

struct Weights {
  std::map<std::string, Tensors> models;
  State recipe;
  std::filesystem::path path;
  std::string which;
};

std::int64_t best_step(const snapshot::Content& content) {
  const auto trainer = content.parts.find("trainer");
  if (trainer == content.parts.end() || !trainer->second.json.contains("metrics")) return -1;
  for (const auto& [name, metric] : trainer->second.json["metrics"].items()) {
    if (name.starts_with("val_") && metric.is_array() && metric.size() == 3) return metric[2].get<std::int64_t>();
  }
  return -1;
}

Weights from_snapshot(const snapshot::Content& content, const std::filesystem::path& path, const std::string& what) {
  Weights weights;
  weights.models = content.models;
  if (const auto part = content.parts.find("recipe"); part != content.parts.end()) weights.recipe = part->second;
  weights.path = path;
  weights.which = what + " step " + std::to_string(content.step) + " of " + path.parent_path().parent_path().string();
  return weights;
}

// The best snapshot of a run if it is still there and whole, else the newest whole one.
Weights from_run(Fs& fs, const std::filesystem::path& run, telemetry::Console& console) {
  const auto newest = snapshot::load_newest(fs, run, [&](const std::filesystem::path& path, const std::string& reason) {
    console.warning("snapshot " + path.string() + " is damaged and passed over: " + reason);
  });
  if (!newest) {
    throw SnapshotError({"there is no valid snapshot in " + run.string(), "--from",
                         "give the folder of a run that has saved, a snapshot, or a .safetensors file"});
  }
  const std::int64_t best = best_step(*newest);
  std::filesystem::path newest_path;
  for (const snapshot::Found& found : snapshot::list(fs, run)) {
    if (found.step == newest->step) newest_path = found.path;
    if (found.step != best || best == newest->step) continue;
    try {
      return from_snapshot(snapshot::load(fs, found.path), found.path, "best snapshot,");
    } catch (const SnapshotError& error) {
      console.warning("the best snapshot " + found.path.string() + " is damaged and passed over: " + error.message().what);
    }
  }
  return from_snapshot(*newest, newest_path, best == newest->step ? "best snapshot," : "newest snapshot,");
}

Weights from_file(const std::filesystem::path& path) {
  Weights weights;
  weights.models["model"] = snapshot::read_tensors(path);
  weights.path = path;
  weights.which = "weights of " + path.string();
  return weights;
}

void override_values(config::Resolved& config, const Json& overrides) {
  for (const auto& [key, value] : overrides.items()) {
    std::string pointer = "/" + key;
    std::replace(pointer.begin(), pointer.end(), '.', '/');
    config.values[Json::json_pointer(pointer)] = value;
    config.origins[key] = "flag --" + key;
  }
}

}  // namespace

Loaded load_for_inference(const Entry& entry, const std::filesystem::path& from, const config::Resolved* config,
                          const Json& overrides, telemetry::Console& console) {
  Fs& fs = Fs::real();
  if (!fs.exists(from))
    throw UsageError(
        {from.string() + " does not exist", "--from", "give the folder of a run, a snapshot, or a .safetensors file"});
  Loaded loaded;
  Weights weights;
  std::filesystem::path run;
  if (std::filesystem::is_regular_file(from)) {
    weights = from_file(from);
  } else if (fs.exists(from / "manifest.json")) {
    weights = from_snapshot(snapshot::load(fs, from), from, "snapshot,");
    run = from.parent_path().parent_path();
  } else {
    weights = from_run(fs, from, console);
    run = from;
  }
  if (!run.empty()) {
    loaded.config = read_config(fs, run);
  } else if (config != nullptr) {
    loaded.config = *config;
  } else {
    throw UsageError({"a weights file alone does not say its model's shape", from.string(),
                      "give the config it was trained with, by --config or --preset"});
  }
  override_values(loaded.config, overrides);

  const RunConfig shared = config::read<RunConfig>(loaded.config.values);
  loaded.switches = std::make_unique<Switches>(shared.train.off);
  Context context;
  context.device = device::choose(shared.device.name).device;
  device::set_threads(static_cast<int>(shared.device.threads.value_or(device::cpu_info().physical_cores)));
  context.switches = loaded.switches.get();
  context.config_folder = std::filesystem::current_path();
  context.cache_folder = cache_folder();
  context.seed = static_cast<std::uint64_t>(shared.train.seed);
  context.notice = [](const std::string&) {
  };  // the recipe may outlive the caller's console, and what it says was said in training
  loaded.recipe = entry.make(loaded.config.values, context);
  loaded.recipe->load_state(weights.recipe);
  load_model_tensors(loaded.recipe->model(), weights.models);
  loaded.recipe->model().to(context.device);
  loaded.recipe->model().eval();
  loaded.snapshot = weights.path;
  loaded.which = weights.which;
  return loaded;
}

std::map<std::string, double> evaluate(Loaded& loaded, telemetry::Console& console) {
  const RunConfig config = config::read<RunConfig>(loaded.config.values);
  loaded.recipe->before_training();
  data::Pipeline pipeline = loaded.recipe->data(Split::validation);
  if (pipeline.datasets.empty()) {
    throw UsageError(
        {"the recipe has no validation data", "its validation split is empty", "point --data at data with a validation part"});
  }
  const auto options = loader_options(config, *loaded.switches, pipeline, Split::validation, console);
  data::Loader loader(std::move(pipeline), options);
  telemetry::Timeline timeline;
  const at::Device device =
      loaded.recipe->model().parameters().empty() ? at::Device(at::kCPU) : loaded.recipe->model().parameters()[0].device();
  Stepper stepper(*loaded.recipe, *loaded.switches, timeline,
                  {.device = device, .seed = static_cast<std::uint64_t>(config.train.seed)});
  loaded.recipe->model().eval();
  return validation_means(*loaded.recipe, stepper, loader, device, config.train.validate_batches)
      .value_or(std::map<std::string, double>{});
}

}  // namespace millrace
