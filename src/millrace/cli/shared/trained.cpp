#include "millrace/cli/shared/trained.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>

#include "millrace/base/format.h"
#include "millrace/cli/shared/arguments.h"
#include "millrace/format/safetensors.h"
#include "millrace/precision/precision.h"
#include "millrace/runs/run_row.h"
#include "millrace/snapshot/snapshot.h"
#include "millrace/train/assembly/weights.h"
#include "millrace/train/run/command_config.h"
#include "millrace/train/run_folder/run_files.h"
#include "millrace/train/run_folder/run_record.h"

namespace millrace::cli {
namespace {

bool is_in(std::string_view key, std::initializer_list<std::string_view> places) {
  return std::any_of(places.begin(), places.end(),
                     [&](std::string_view place) { return place.ends_with('.') ? key.starts_with(place) : key == place; });
}

// True if a trained model or this command uses the key. The recipe's own keys always count as used.
bool is_used(const Entry& entry, std::string_view key, bool evaluates) {
  for (const config::Leaf& leaf : entry.sections.leaves)
    if (leaf.path == key) return true;
  if (is_in(key, {"device.", "precision.", "data.dir", "data.batch_size", "train.off"})) return true;
  return evaluates && is_in(key, {"data.", "train.seed", "train.validate_batches", "memory.micro_batches"});
}

void refuse_unused(const Entry& entry, const std::vector<std::string>& keys, const std::string& command) {
  std::vector<Problem> problems;
  for (const std::string& key : keys) {
    if (is_used(entry, key, command == "eval")) continue;
    problems.push_back({std::string("key ").append(key).append(" has no effect on millrace ").append(command), "flag for " + key,
                        "remove the flag: the model is already trained"});
  }
  if (!problems.empty()) throw ConfigError(std::move(problems));
}

const Entry* find_recipe(std::span<const Entry> recipes, const std::string& name) {
  const auto found = std::find_if(recipes.begin(), recipes.end(), [&](const Entry& entry) { return entry.name == name; });
  return found == recipes.end() ? nullptr : &*found;
}

// Takes --from, or the flags --run-dir and --model-type that another trainer uses instead.
std::optional<std::string> take_from(Arguments& arguments) {
  auto from = arguments.value("from"), run = arguments.value("run-dir"), type = arguments.value("model-type");
  if (!run && type)
    throw UsageError(
        {"--model-type chooses a snapshot of the run that --run-dir names", "flag --model-type", "add --run-dir RUN"});
  if (!run) return from;
  if (from)
    throw UsageError({"--from and --run-dir both name a trained model", "flags --from and --run-dir", "remove one of them"});
  if (!type || *type == "best") return run;
  if (*type != "last") {
    throw UsageError({"there is no model type " + quoted(*type), "flag --model-type",
                      "write best or last; each fold is a separate run: name its folder with --run-dir"});
  }
  const std::vector<snapshot::Found> found = snapshot::list(Fs::real(), *run);
  if (found.empty())
    throw UsageError({"the run has no snapshot", *run, "name another run; to list the runs below ./runs: millrace runs"});
  return found.back().path.string();
}

void require_there(const std::string& from) {
  if (!std::filesystem::exists(from))
    throw UsageError(
        {"there is no file or folder " + from, "flag --from", "name a run; to list the runs below ./runs: millrace runs"});
  if (!std::filesystem::is_directory(from) || Fs::real().exists(std::filesystem::path(from) / run_files::kRun)) return;
  constexpr std::size_t kMostNames = 5;
  std::vector<std::string> names;  // newest first
  for (const runs::RunRow& row : runs::find_runs(from))
    if (names.size() < kMostNames) names.push_back(row.folder.string());
  if (names.empty() || std::filesystem::equivalent(names.front(), from)) return;
  throw UsageError(
      {from + " is a folder of runs", "flag --from",
       "name a run: --from " + names.front() + (names.size() > 1 ? "; the newest are " + joined(names, ", ") : std::string())});
}

// The name of the recipe that the run or file names; "" if it names no recipe.
std::string recipe_of(const std::filesystem::path& from) {
  Fs& fs = Fs::real();
  if (const std::filesystem::path run = run_folder_of(fs, from); !run.empty()) return recipe_of_run(fs, run);
  if (from.extension() != ".safetensors" || !std::filesystem::is_regular_file(from)) return "";
  const format::Metadata metadata = format::SafetensorsFile(from).metadata();
  const auto recipe = metadata.find("recipe");
  return recipe == metadata.end() ? "" : recipe->second;
}

}  // namespace

const Entry& take_recipe_of_run(Arguments& arguments, std::span<const Entry> recipes, const std::string& command) {
  const std::vector<std::string>& words = arguments.words();
  const bool is_named = (!words.empty() && !words.front().starts_with("-")) ||
                        std::any_of(words.begin(), words.end(), [&](const std::string& word) {
                          return find_recipe(recipes, with_underscores(word)) != nullptr;
                        });
  if (is_named) return take_recipe(arguments, recipes, command);
  if (recipes.size() == 1) return recipes[0];
  Arguments copy(words);
  const auto from = take_from(copy);
  if (from) require_there(*from);
  const std::string name = from ? recipe_of(*from) : "";
  if (name.empty()) return take_recipe(arguments, recipes, command);
  if (const Entry* entry = find_recipe(recipes, name)) return *entry;
  if (runs::Run(*from).is_script())
    throw UsageError({*from + " is a run of your script " + quoted(name) + ", which keeps its own weights", "flag --from",
                      "millrace report, compare, runs and doctor read such a run"});
  throw UsageError({*from + " is of recipe " + quoted(name) + ", which this program does not have", "flag --from",
                    "use the program that trained it; recipes here: " + joined(names_of(recipes), ", ")});
}

std::string description(const Loaded& loaded) {
  return loaded.which + (loaded.autocast ? "; it computes in " + precision::name_of(loaded.autocast) + ", as the run did" : "");
}

Loaded load_trained(const Entry& entry, Arguments& arguments, const std::string& command, telemetry::Console& console) {
  const std::string place = "millrace " + command;
  const auto from = take_from(arguments);
  if (!from) {
    throw UsageError(
        {place + " needs a trained model", place,
         "add --from with a run folder (runs/" + entry.name + "/...), a snapshot folder, a .safetensors or a .pt file"});
  }
  require_there(*from);
  if (std::filesystem::is_directory(*from)) {
    const Json overrides = config_overrides(entry, arguments);
    std::vector<std::string> keys;
    for (const auto& [key, value] : overrides.items()) keys.push_back(key);
    refuse_unused(entry, keys, command);
    keep_memory_unless_off(std::vector<std::string>{});
    return load_for_inference(entry, *from, nullptr, overrides, console);
  }
  const CommandConfig config = resolve_command_config(entry, arguments);
  std::vector<std::string> keys;
  for (const auto& [key, origin] : config.resolved.origins)
    if (origin.starts_with("flag")) keys.push_back(key);
  refuse_unused(entry, keys, command);
  keep_memory_unless_off(config.resolved);
  return load_for_inference(entry, *from, &config.resolved, Json::object(), console);
}

}  // namespace millrace::cli
