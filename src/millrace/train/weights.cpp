#include "millrace/train/weights.h"

#include "millrace/base/error.h"
#include "millrace/snapshot/snapshot.h"

namespace millrace {
namespace {

// Of the validation loss, whose entry names the step that the run judged best; -1 = unknown.
std::int64_t best_step(const Json& metrics, const char* place) {
  for (const auto& [name, metric] : metrics.items()) {
    if (name.starts_with("val_")) return metric.at(Json::json_pointer(place)).get<std::int64_t>();
  }
  return -1;
}

// As the newest snapshot knows it; but the last validation of a run comes after its last snapshot, and only its summary knows.
std::int64_t best_step(Fs& fs, const std::filesystem::path& run, const snapshot::Content& newest) {
  const std::filesystem::path file = run / "summary.json";
  const Json summary = fs.exists(file) ? Json::parse(fs.read_file(file), nullptr, /*allow_exceptions=*/false) : Json();
  const bool is_of_it = summary.is_object() && summary.value("steps", Json()) == newest.step && summary.contains("metrics");
  const auto trainer = newest.parts.find("trainer");
  try {
    if (is_of_it) return best_step(summary["metrics"], "/best_step");
    return trainer == newest.parts.end() ? -1 : best_step(trainer->second.json.at("metrics"), "/2");
  } catch (const Json::exception&) {  // of another hand
    return -1;
  }
}

Weights from_snapshot(const snapshot::Content& content, const std::filesystem::path& path, const std::string& what) {
  Weights weights;
  weights.models = content.models;
  const auto average = content.parts.find("average");
  const bool averaged = average != content.parts.end();
  for (auto& [file, tensors] : weights.models) {
    for (auto& [name, tensor] : tensors) {
      if (averaged && average->second.tensors.contains(name)) tensor = average->second.tensors.at(name);
    }
  }
  if (const auto part = content.parts.find("recipe"); part != content.parts.end()) weights.recipe = part->second;
  weights.path = path;
  weights.run = path.parent_path().parent_path();
  weights.which = what + " step " + std::to_string(content.step) + " of " + weights.run.string();
  if (averaged) weights.which += ", averaged weights";
  return weights;
}

// The best snapshot of a run if it is still there and whole, else the newest whole one.
Weights from_run(Fs& fs, const std::filesystem::path& run, telemetry::Console& console) {
  const auto newest = snapshot::load_newest(fs, run, [&](const std::filesystem::path& path, const std::string& reason) {
    console.warning("snapshot " + path.string() + " is damaged and passed over: " + reason);
  });
  if (!newest) {
    throw SnapshotError({"there is no valid snapshot in " + run.string(), "--from",
                         "give the folder of a run that has saved, a snapshot, or a .safetensors or .pt file"});
  }
  const std::int64_t best = best_step(fs, run, *newest);
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

}  // namespace

Weights load_weights(Fs& fs, const std::filesystem::path& from, telemetry::Console& console) {
  if (!fs.exists(from)) {
    throw UsageError(
        {from.string() + " does not exist", "--from", "give the folder of a run, a snapshot, or a .safetensors or .pt file"});
  }
  if (std::filesystem::is_regular_file(from)) return from_file(from);
  if (fs.exists(from / "manifest.json")) return from_snapshot(snapshot::load(fs, from), from, "snapshot,");
  Weights weights = from_run(fs, from, console);
  weights.run = from;
  return weights;
}

}  // namespace millrace
