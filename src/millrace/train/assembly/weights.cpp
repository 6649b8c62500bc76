#include "millrace/train/assembly/weights.h"

#include <cerrno>
#include <cstdint>
#include <optional>
#include <system_error>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/json.h"
#include "millrace/core/saved_json.h"
#include "millrace/format/pt.h"
#include "millrace/format/safetensors.h"
#include "millrace/snapshot/layout.h"
#include "millrace/snapshot/snapshot.h"
#include "millrace/train/assembly/convolution_choice.h"
#include "millrace/train/run_folder/run_files.h"
#include "millrace/train/run_folder/run_folder.h"
#include "millrace/train/run_folder/run_record.h"

namespace millrace {
namespace {

// Reads a JSON file. Null if the file can't be read, because a truncated or foreign file must not end a search.
Json read_json(Fs& fs, const std::filesystem::path& file) {
  try {
    return Json::parse(fs.read_file(file), nullptr, /*allow_exceptions=*/false);
  } catch (const FsError&) {
    return {};
  }
}

// The folder of the run to which a snapshot belongs. Also works if the path is "." or ends in a slash.
std::filesystem::path run_of_snapshot(const std::filesystem::path& snapshot) {
  const auto plain = [](const std::filesystem::path& path) {
    const std::filesystem::path normal = path.lexically_normal();
    return normal.has_filename() ? normal : normal.parent_path();
  };
  const std::filesystem::path given = plain(snapshot);
  const bool tells = given.parent_path().has_parent_path() && given.filename() != "." && given.filename() != "..";
  const std::filesystem::path whole = tells ? given : plain(std::filesystem::absolute(snapshot));
  return whole.parent_path().parent_path();
}

struct Best {
  std::int64_t step = -1;  // step of the best value; -1 = unknown
  std::string metric;      // the metric and its best value: "val_loss 0.1234"; "" = unknown
};

// Reads from `metrics` the best value of the metric `judge`, at the JSON pointer `best`, and the step of the best validation
// loss, at the JSON pointer `step`.
Best best_of(const Json& metrics, const std::string& judge, const char* best, const char* step) {
  Best found;
  for (const auto& [name, metric] : metrics.items()) {
    const Json& value = metric.at(Json::json_pointer(best));
    if (!value.is_number()) continue;
    const Json& at = metric.at(Json::json_pointer(step));
    const bool is_loss = found.step < 0 && name.starts_with("val_");
    if (is_loss && at.is_number_integer()) found.step = at.get<std::int64_t>();
    if (name == judge || (judge.empty() && is_loss)) found.metric = name + " " + significant(value.get<double>(), 6);
  }
  return found;
}

Best best_in(const Json& judged) {
  if (!judged.is_object()) return {};  // no validation gave a number, so there is no best
  const Json& step = judged.at("step");
  if (!step.is_number_integer()) return {};
  return {.step = step.get<std::int64_t>(),
          .metric = judged.at("metric").get<std::string>() + " " + significant(judged.at("value").get<double>(), 6)};
}

std::string judge_of(const Json& config) {
  const Json::json_pointer place("/snapshot/best_metric");
  return config.is_object() && config.contains(place) && config.at(place).is_string() ? config.at(place).get<std::string>() : "";
}

// Returns the best validation. If the summary is about the newest snapshot's step, the best validation comes from the summary,
// because a run's last validation comes after its last snapshot. Otherwise it comes from the snapshot.
Best best_of(Fs& fs, const std::filesystem::path& run, const snapshot::Content& newest) {
  const Json summary = read_json(fs, run / run_files::kSummary);
  const State* trainer = snapshot::part_of(newest, snapshot::kTrainer);
  const std::string judge = judge_of(newest.config);
  try {
    const bool is_of_it = summary.is_object() && summary.value("steps", Json()) == newest.step && summary.contains("metrics");
    if (is_of_it && summary.contains("best")) return best_in(summary["best"]);
    // Summaries of earlier versions have these names.
    if (is_of_it) return best_of(summary["metrics"], judge, "/best", "/best_step");
    return trainer == nullptr ? Best() : best_of(trainer->json.at("metrics"), judge, "/1", "/2");
  } catch (const Json::exception&) {  // ignored, because another program wrote the file
    return {};
  }
}

Weights from_snapshot(const snapshot::Content& content, const std::filesystem::path& path, const std::string& what) {
  Weights weights;
  weights.models = content.models;
  const State* average = snapshot::part_of(content, snapshot::kAverage);
  for (auto& [file, tensors] : weights.models) {
    for (auto& [name, tensor] : tensors) {
      if (average != nullptr && average->tensors.contains(name)) tensor = average->tensors.at(name);
    }
  }
  const State* recipe = snapshot::part_of(content, snapshot::kRecipe);
  if (recipe == nullptr) refuse_part(snapshot::kRecipe, "it is missing");
  weights.recipe = *recipe;
  if (const State* frozen = snapshot::part_of(content, snapshot::kFrozen)) weights.frozen = frozen->json;
  if (const State* trainer = snapshot::part_of(content, snapshot::kTrainer); trainer != nullptr && trainer->json.is_object()) {
    const auto choices = trainer->json.find("choices");
    if (choices != trainer->json.end() && choices->is_object()) weights.choices = *choices;
  }
  if (const auto found = content.report.find(kConvolutionsInReport); found != content.report.end()) weights.convolutions = *found;
  weights.step = content.step;
  weights.path = path;
  weights.run = run_of_snapshot(path);
  weights.which = what + " step " + std::to_string(content.step) + " of " + weights.run.string();
  if (average != nullptr) weights.which += ", averaged weights";
  return weights;
}

// Throws if the folder can't be read, because such a folder may still hold snapshots.
void require_reachable(const std::filesystem::path& snapshots) {
  std::error_code code;
  (void)std::filesystem::status(snapshots, code);
  if (!code || code == std::errc::no_such_file_or_directory || code == std::errc::not_a_directory) return;
  throw SnapshotError({"can't look for snapshots: " + code.message(), snapshots.string(), "check the folder's permissions"});
}

[[noreturn]] void no_snapshot(const std::filesystem::path& run, const std::string& passed_over) {
  throw SnapshotError({"there is no valid snapshot in " + run.string(), passed_over.empty() ? "--from" : passed_over,
                       "give a snapshot, a .safetensors or .pt file, or the folder of a run that has saved a snapshot"});
}

// The weights of a run's best snapshot, or of its newest complete snapshot if the best one is missing or incomplete.
Weights from_run(Fs& fs, const std::filesystem::path& run, telemetry::Console& console) {
  require_reachable(run / "snapshots");
  std::string first;
  const auto newest = snapshot::load_newest(fs, run, [&](const std::filesystem::path& path, const std::string& reason) {
    if (first.empty()) first = reason;
    console.warning("snapshot " + path.string() + " is damaged and was skipped: " + reason);
  });
  if (!newest) no_snapshot(run, first);
  const Best best = best_of(fs, run, *newest);
  const auto chosen = [&](const snapshot::Content& content, const std::filesystem::path& path) {
    const bool is_best = content.step == best.step;
    Weights weights = from_snapshot(content, path, is_best ? "best snapshot," : "newest snapshot,");
    weights.newest_step = newest->step;
    if (is_best) weights.best = best.metric;
    return weights;
  };
  std::filesystem::path newest_path;
  for (const snapshot::Found& found : snapshot::list(fs, run)) {
    if (found.step == newest->step) newest_path = found.path;
    if (found.step != best.step || best.step == newest->step) continue;
    try {
      return chosen(snapshot::load(fs, found.path), found.path);
    } catch (const SnapshotError& error) {
      console.warning("the best snapshot " + found.path.string() + " is damaged and was skipped: " + error.message().what);
    }
  }
  return chosen(*newest, newest_path);
}

Json values_of(const std::filesystem::path& path) {
  Json values = Json::object();
  if (format::looks_like_pt(path)) {
    const format::PtFile file(path);
    for (const format::PtValue& value : file.values()) values[value.name] = value.value;
    // Reads NAME.run.json, which `millrace export` writes next to weights in a format without metadata.
    const Json beside = read_json(Fs::real(), std::filesystem::path(path).replace_extension(".run.json"));
    if (beside.is_object() && beside.contains("config") && !values.contains("config")) values["config"] = beside["config"].dump();
  } else {
    const format::SafetensorsFile file(path);
    for (const auto& [name, text] : file.metadata()) values[name] = text;
  }
  return values;
}

Weights from_file(const std::filesystem::path& path) {
  Weights weights;
  weights.models["model"] = snapshot::read_tensors(path);
  weights.values = values_of(path);
  weights.path = path;
  weights.which = "weights of " + path.string();
  return weights;
}

}  // namespace

std::string take_state_dict(Weights& weights) {
  Tensors& all = weights.models["model"];
  for (const char* part : {"model_state_dict", "state_dict"}) {
    const std::string prefix = std::string(part) + ".";
    Tensors taken;
    for (const auto& [name, tensor] : all)
      if (name.starts_with(prefix)) taken.emplace(name.substr(prefix.size()), tensor);
    if (taken.empty()) continue;
    all = std::move(taken);
    return part;
  }
  return "";
}

std::filesystem::path run_folder_of(Fs& fs, const std::filesystem::path& from) {
  if (!std::filesystem::is_directory(from)) return {};
  return fs.exists(from / "manifest.json") ? run_of_snapshot(from) : from;
}

Weights load_weights(Fs& fs, const std::filesystem::path& from, telemetry::Console& console) {
  if (!fs.exists(from)) {
    throw UsageError(
        {from.string() + " does not exist", "--from", "give the folder of a run, a snapshot, or a .safetensors or .pt file"});
  }
  if (std::filesystem::is_regular_file(from)) return from_file(from);
  if (fs.exists(from / "manifest.json")) return from_snapshot(snapshot::load(fs, from), from, "snapshot,");
  const std::filesystem::path run = run_with_snapshots(fs, from);
  Weights weights = from_run(fs, run, console);
  weights.run = run;
  return weights;
}

}  // namespace millrace
