#include "millrace/train/run/command_config.h"

#include <algorithm>

#include "millrace/base/format.h"
#include "millrace/device/device.h"
#include "millrace/train/recipe/switchboard.h"
#include "millrace/train/run/run.h"
#include "millrace/train/run_folder/run_files.h"
#include "millrace/train/run_folder/run_folder.h"

namespace millrace {
namespace {

config::Schema without_required(config::Schema schema) {
  for (auto& leaf : schema.leaves) leaf.required = false;
  return schema;
}

void add_preset(config::Layers& layers, const Entry& entry, const std::string& preset) {
  std::vector<std::string> names;
  for (const auto& [name, values] : entry.presets) {
    if (config::with_underscores(preset) == name) {
      layers.add_values(values, "preset " + name);
      return;
    }
    names.push_back(name);
  }
  layers.add_problem({"recipe " + entry.name + " has no preset " + quoted(preset), "flag --preset=" + preset,
                      names.empty() ? "remove --preset: this recipe has no presets"
                                    : config::suggestion(preset, names) + "presets: " + joined(names, ", ")});
}

// The words that are neither config flags nor values of such flags. The flags themselves are checked later, together with all
// layers.
std::vector<std::string> without_flags(const config::Schema& schema, const std::vector<config::Alias>& aliases,
                                       const std::vector<std::string>& words) {
  config::Layers layers(schema, aliases);
  return layers.add_flags(words);
}

void add_plain_flags(config::Layers& layers, config::Arguments& arguments) {
  if (const auto run = arguments.value("run")) layers.add_values(Json{{"run.dir", *run}}, "flag --run");
  if (const auto data = arguments.value("data")) layers.add_values(Json{{"data.dir", *data}}, "flag --data");
  if (const auto off = take_off(arguments); !off.empty()) {
    layers.add_values(Json{{"train.off", off}}, "flag --off");
    try {
      static_cast<void>(Switches(off));
    } catch (const ConfigError& error) {
      for (Problem problem : error.problems()) {
        problem.where = "flag --off";
        layers.add_problem(std::move(problem));
      }
    }
  }
}

void add_problems(config::Layers& layers, config::Arguments& arguments) {
  for (auto& problem : arguments.problems()) layers.add_problem(std::move(problem));
  arguments.problems().clear();
}

void add_unexpected_words(config::Layers& layers, const std::vector<std::string>& words) {
  for (const auto& word : words) {
    layers.add_problem({"unexpected word " + quoted(word), "command line",
                        "config files end in .json, .toml, .yaml or .yml; values are written --section.key=value"});
  }
}

// A config file that is named by a key of the recipe (Entry::named_configs), if the command sets that key.
struct NamedFile {
  const Entry::NamedConfig* config;
  std::filesystem::path path;
};

std::vector<NamedFile> named_files(const Entry& entry, const config::Layers& naming) {
  std::vector<NamedFile> files;
  for (const Entry::NamedConfig& each : entry.named_configs) {
    const auto path = naming.last_path(each.key);
    if (path && !path->empty()) files.push_back({&each, *path});
  }
  return files;
}

// The config of the run whose folder the command names. Empty if there is no such run.
struct OldRun {
  Json values = Json::object();
  std::string origin;
  std::vector<std::filesystem::path> folders;  // the folders in which relative paths of the config are looked up
  std::string preset;
  std::string notice;
};

RunNames run_names(const config::Layers& layers) {
  const auto text = [&](const char* key) {
    const auto value = layers.last(key);
    return value && value->is_string() ? value->get<std::string>() : std::string();
  };
  return {.dir = text("run.dir"), .parent = text("run.parent"), .name = text("run.name")};
}

// The saved values that a resumed run keeps. Left out are values about the run's folder, the run's start and the profile, and
// values equal to the recipe's defaults.
Json values_that_go_on(const Entry& entry, const config::Schema& schema, const Json& saved) {
  Json values = known_values(schema, saved);
  const config::Schema defaults = schema_with_defaults(entry);
  for (const config::Leaf& leaf : defaults.leaves) {
    const auto value = values.find(leaf.path);
    const bool begins = leaf.path == "train.resume" && value != values.end() && *value == "never";
    const bool is_of_a_start = leaf.path.starts_with("run.") || leaf.path.starts_with("profile.");
    if (value != values.end() && (is_of_a_start || begins || *value == leaf.default_value)) values.erase(value);
  }
  return values;
}

OldRun find_old_run(const Entry& entry, const config::Schema& schema, const config::Layers& naming) {
  const RunDestination place = destination_of_run(entry.name, run_names(naming));
  Fs& fs = Fs::real();
  if (place.takes_next_name || !std::filesystem::is_directory(place.folder)) return {};
  const auto record = read_record(fs, place.folder);
  if (!record) return {};
  refuse_another_recipe(*record, place.folder, entry.name);
  std::filesystem::path folder = run_with_snapshots(fs, place.folder);
  if (!fs.exists(folder / run_files::kConfig)) folder = place.folder;
  if (!fs.exists(folder / run_files::kConfig)) return {};
  OldRun run;
  try {
    run.values = values_that_go_on(entry, schema, read_config(fs, folder).values);
  } catch (const SnapshotError& error) {
    run.notice = error.message().what + ": only the values of the command line are used";
    return run;
  }
  run.origin = "run " + place.folder.string();
  run.folders = folders_of_run(fs, folder);
  run.preset = read_first_start(folder).preset;
  return run;
}

}  // namespace

bool names_a_config_file(const std::string& word) {
  const std::string suffix = std::filesystem::path(word).extension().string();
  return suffix == ".json" || suffix == ".toml" || suffix == ".yaml" || suffix == ".yml";
}

std::vector<std::string> take_off(config::Arguments& arguments) {
  std::vector<std::string> rows;
  for (const auto& list : arguments.values({"off"})) {
    for (std::size_t begin = 0; begin <= list.size();) {
      const std::size_t end = std::min(list.find(',', begin), list.size());
      if (end > begin) rows.push_back(config::with_underscores(list.substr(begin, end - begin)));
      begin = end + 1;
    }
  }
  return rows;
}

std::vector<std::string> take_plain_words(const Entry& entry, config::Arguments& arguments) {
  const config::Schema schema = schema_of(entry);
  const std::vector<config::Alias> aliases = aliases_of(entry);
  const std::vector<std::string> words = arguments.words();
  std::vector<std::string> plain, begun, others;
  for (const std::string& word : words) {  // a word is not plain if it is the value of the flag before it
    begun.push_back(word);
    const bool is_plain = without_flags(schema, aliases, begun).size() > plain.size();
    (is_plain ? plain : others).push_back(word);
  }
  arguments = config::Arguments(others);
  return plain;
}

CommandConfig resolve_command_config(const Entry& entry, config::Arguments& arguments, bool fresh) {
  const config::Schema schema = schema_of(entry);
  const std::vector<config::Alias> aliases = aliases_of(entry);
  const auto preset = arguments.value("preset");
  std::vector<std::string> files = arguments.values({"environment_file", "e"});
  for (auto& file : arguments.values({"config", "config_file", "c"})) files.push_back(std::move(file));
  // The flags are parsed once now, so that their values are not mistaken for config files.
  config::Arguments plain(arguments.words());
  config::Layers flags(schema, aliases);
  add_plain_flags(flags, plain);
  std::vector<std::string> leftovers = without_flags(schema, aliases, plain.words());
  const auto first_other = std::stable_partition(leftovers.begin(), leftovers.end(), names_a_config_file);
  files.insert(files.end(), leftovers.begin(), first_other);
  leftovers.erase(leftovers.begin(), first_other);

  const auto fill = [&](config::Layers& layers, const OldRun& run, const std::vector<NamedFile>& named = {}) {
    layers.add_values(entry.defaults, "recipe " + entry.name);
    layers.add_values(run.values, run.origin, run.folders);
    if (preset) add_preset(layers, entry, *preset);
    for (const NamedFile& file : named) layers.add_file(file.path, file.config->convert);
    for (const auto& file : files) layers.add_file(file, entry.convert_file);
    layers.add_environment();
    config::Arguments words = arguments;
    add_plain_flags(layers, words);
    const std::vector<std::string> flag_words = words.rest();
    // The result is not needed: add_flags() returns the config files, which were added above, and `leftovers`.
    static_cast<void>(layers.add_flags(flag_words));
    add_unexpected_words(layers, leftovers);
    add_problems(layers, words);
  };
  OldRun run;
  config::Layers naming(schema, aliases);
  fill(naming, run);
  if (!fresh) run = find_old_run(entry, schema, naming);
  config::Layers layers(schema, aliases);
  fill(layers, run, named_files(entry, naming));
  arguments = config::Arguments(std::vector<std::string>());

  CommandConfig result;
  result.resolved = layers.resolve();
  if (!run.notice.empty()) result.resolved.notices.push_back(run.notice);
  if (auto problems = run_problems(entry, result.resolved); !problems.empty()) throw ConfigError(std::move(problems));
  result.preset = preset ? config::with_underscores(*preset) : run.preset;
  return result;
}

config::Schema schema_with_defaults(const Entry& entry) {
  config::Schema schema = without_required(schema_of(entry));
  config::Layers layers(schema);
  layers.add_values(entry.defaults, "recipe " + entry.name);
  const config::Resolved resolved = layers.resolve();
  config::Schema result = schema_of(entry);
  for (auto& leaf : result.leaves) leaf.default_value = resolved.values.at(config::pointer_to(leaf.path));
  return result;
}

std::string config_table(const config::Schema& schema, const config::Resolved& resolved) {
  std::vector<std::vector<std::string>> rows = {{"key", "value", "from"}};
  for (const auto& leaf : schema.leaves) {
    const auto origin = resolved.origins.find(leaf.path);
    rows.push_back({leaf.path, resolved.values.at(config::pointer_to(leaf.path)).dump(),
                    origin == resolved.origins.end() ? "" : origin->second});
  }
  return table(rows);
}

Json config_overrides(const Entry& entry, config::Arguments& arguments) {
  // required keys are left out, because the run's own config has their values
  const config::Schema schema = without_required(schema_of(entry));
  config::Layers layers(schema, aliases_of(entry));
  add_plain_flags(layers, arguments);
  const std::vector<std::string> flag_words = arguments.rest();
  add_unexpected_words(layers, layers.add_flags(flag_words));
  add_problems(layers, arguments);
  const config::Resolved resolved = layers.resolve();
  Json overrides = Json::object();
  for (const auto& leaf : schema.leaves) {
    const auto origin = resolved.origins.find(leaf.path);
    if (origin != resolved.origins.end() && origin->second.starts_with("flag"))
      overrides[leaf.path] = resolved.values.at(config::pointer_to(leaf.path));
  }
  return overrides;
}

std::filesystem::path folder_of_run(const Entry& entry, const RunNames& names) {
  return destination_of_run(entry.name, names).folder;
}

c10::Device ready_device(const DeviceConfig& config) {
  const c10::Device device = device::choose(config.name).device;
  device::set_threads(static_cast<int>(config.threads.value_or(device::cpu_info().physical_cores)));
  return device;
}

void keep_memory_unless_off(const std::vector<std::string>& off) {
  const auto named = [&](const char* row) { return std::find(off.begin(), off.end(), row) != off.end(); };
  if (!named("keep_memory") && !named("all")) device::keep_freed_memory();
}

void keep_memory_unless_off(const config::Resolved& resolved) {
  keep_memory_unless_off(resolved.values.at("train").at("off").get<std::vector<std::string>>());
}

}  // namespace millrace
