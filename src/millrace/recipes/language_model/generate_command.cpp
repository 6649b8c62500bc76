#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/config/schema_of.h"
#include "millrace/recipes/language_model/entry.h"
#include "millrace/recipes/language_model/recipe.h"
#include "millrace/train/recipe/config.h"
#include "millrace/train/recipe/recipe_guard.h"
#include "millrace/train/run/run.h"

namespace millrace::recipes::language_model {
namespace {

namespace stdfs = std::filesystem;

constexpr std::string_view kHelp = R"(usage: millrace generate [CONFIG] [PROMPT] [options]

Continues PROMPT with a trained language model and prints the text. The model is that of --from, else of the run that CONFIG
(the file it was trained with) names, else of the newest run in runs/language_model.

  --from RUN            folder of a run or a snapshot, or a .safetensors file (then with CONFIG)
  --beam                the likeliest text that beam search finds, instead of drawing
  --interactive         continue each line that is typed
  --max_length N        tokens to write (100)       --temperature T   0 = always the likeliest token (0.8)
  --top_k N             draw from the N likeliest (50); 0 = all       --top_p P   smallest set of that probability (0.9)
  --beam_size N         candidates of --beam (5)    --seed N          another seed, another text (0)
  --device D            auto, cpu, cuda, cuda:1
)";

struct Request {
  bool help = false, beam = false, interactive = false;
  std::optional<std::string> from, config_file, prompt;
  std::vector<std::string> flags;
};

bool is_config_file(const std::string& word) {
  const std::string suffix = stdfs::path(word).extension().string();
  return suffix == ".toml" || suffix == ".json" || suffix == ".yaml" || suffix == ".yml";
}

// Takes the command's own options; what is left are config flags and positional words.
Request parse(std::span<const std::string> words) {
  Request request;
  const auto value_of = [&](const std::string& name, std::size_t& i) -> std::optional<std::string> {
    if (words[i].starts_with(name + "=")) return words[i].substr(name.size() + 1);
    if (words[i] != name) return std::nullopt;
    if (i + 1 == words.size()) throw UsageError({name + " needs a value", "millrace generate", "millrace generate --help"});
    return words[++i];
  };
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--help" || words[i] == "-h") {
      request.help = true;
    } else if (words[i] == "--beam") {
      request.beam = true;
    } else if (words[i] == "--interactive") {
      request.interactive = true;
    } else if (auto from = value_of("--from", i)) {
      request.from = std::move(from);
    } else if (auto config = value_of("--config", i)) {
      request.config_file = std::move(config);
    } else {
      const bool seed = words[i] == "--seed" || words[i].starts_with("--seed=");  // of the draws: training has another
      request.flags.push_back(seed ? "--generate." + words[i].substr(2) : words[i]);
    }
  }
  return request;
}

// Fills in config_file and prompt from the positional words.
config::Resolved resolve(Request& request, const Entry& row) {
  const config::Schema schema = schema_of(row);
  const auto aliases = aliases_of(row);
  std::vector<Problem> problems;
  for (const std::string& word : config::Layers(schema, aliases).add_flags(request.flags)) {
    if (!request.config_file && !request.prompt && is_config_file(word)) {
      request.config_file = word;
    } else if (!request.prompt) {
      request.prompt = word;
    } else {
      problems.push_back({"a second prompt: " + quoted(word), "millrace generate", "put a prompt of several words into quotes"});
    }
  }
  config::Layers layers(schema, aliases);
  layers.add_values(row.defaults, "recipe");
  if (request.config_file) layers.add_file(*request.config_file);
  layers.add_environment();
  layers.add_flags(request.flags);
  for (Problem& problem : problems) layers.add_problem(std::move(problem));
  return layers.resolve();
}

// The run folder whose snapshots were written last.
stdfs::path newest_run(const stdfs::path& runs) {
  std::optional<std::pair<stdfs::file_time_type, stdfs::path>> newest;
  std::error_code ignored;
  for (const auto& run : stdfs::directory_iterator(runs, ignored)) {
    const stdfs::path snapshots = run.path() / "snapshots";
    if (!stdfs::is_directory(snapshots, ignored)) continue;
    const auto written = stdfs::last_write_time(snapshots, ignored);
    if (!newest || newest->first < written) newest = {written, run.path()};
  }
  if (!newest) {
    throw UsageError({"there is no trained language model in " + runs.string(), "millrace generate",
                      "train one: millrace train language_model --preset smoke, or name one with --from RUN"});
  }
  return newest->second;
}

stdfs::path model_folder(const Request& request, const Json& config) {
  if (request.from) return *request.from;
  const auto names = config::read<RunConfig>(config).run;
  if (!names.dir.empty()) return names.dir;
  const stdfs::path runs = names.parent.empty() ? stdfs::path("runs") / "language_model" : stdfs::path(names.parent);
  return names.name.empty() ? newest_run(runs) : runs / names.name;
}

// What was said here about writing and the device goes over what the run was trained with.
Json overrides_of(const config::Resolved& config) {
  Json overrides = Json::object();
  for (const auto& [key, origin] : config.origins) {
    const bool ours = key.starts_with("generate.") || key.starts_with("device.");
    if (origin.starts_with("flag")) {
      if (!ours) {
        throw UsageError(
            {"a trained model's " + key + " can't be changed", origin, "flags of generate are generate.* and device.*"});
      }
    } else if (!origin.starts_with("file") && !origin.starts_with("environment")) {
      continue;
    }
    if (!ours) continue;
    std::string pointer = "/" + key;
    std::replace(pointer.begin(), pointer.end(), '.', '/');
    overrides[key] = config.values.at(Json::json_pointer(pointer));
  }
  return overrides;
}

void tell_unknown(LanguageModel& model, const std::string& prompt, telemetry::Console& console) {
  constexpr std::size_t kShown = 20;
  std::vector<std::string> unknown = model.unknown_in(prompt);
  if (unknown.empty()) return;
  const std::size_t count = unknown.size();
  unknown.resize(std::min(count, kShown));
  console.notice("the model's vocabulary lacks " + joined(unknown, " ", [](const std::string& c) { return quoted(c); }) +
                 (count > kShown ? " and " + std::to_string(count - kShown) + " more" : "") +
                 ": each is read as the one unknown character");
}

void interact(LanguageModel& model, bool beam, telemetry::Console& console) {
  std::string line;
  std::cerr << "type a beginning; an empty line or Ctrl-D ends\n> " << std::flush;
  while (std::getline(std::cin, line) && !line.empty()) {
    tell_unknown(model, line, console);
    std::cout << line << model.write(line, model.generate_config(), beam) << "\n";
    std::cerr << "> " << std::flush;
  }
  std::cerr << "\n";
}

}  // namespace

int generate_command(std::span<const std::string> words) {
  Request request = parse(words);
  if (request.help) {
    std::cout << kHelp;
    return 0;
  }
  const Entry row = entry();
  const config::Resolved config = resolve(request, row);

  telemetry::Console console(telemetry::Console::Mode::automatic, 2);
  const stdfs::path from = model_folder(request, config.values);
  Loaded loaded = load_for_inference(row, from, stdfs::is_regular_file(from) ? &config : nullptr, overrides_of(config), console);
  console.line(loaded.which);
  auto& model = dynamic_cast<LanguageModel&>(unguarded(*loaded.recipe));
  if (request.interactive) {
    interact(model, request.beam, console);
    return 0;
  }
  const std::string prompt = request.prompt.value_or(model.generate_config().prompt);
  tell_unknown(model, prompt, console);
  std::cout << prompt << model.write(prompt, model.generate_config(), request.beam) << "\n";
  return 0;
}

}  // namespace millrace::recipes::language_model
