#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/config/arguments.h"
#include "millrace/train/recipe/config.h"
#include "millrace/train/run/command_config.h"
#include "millrace/train/run/loaded.h"
#include "recipes/language_model/entry.h"
#include "recipes/language_model/recipe.h"

namespace millrace::recipes::language_model {
namespace {

namespace stdfs = std::filesystem;

constexpr std::string_view kHelp = R"(usage: millrace generate [CONFIG] [PROMPT] [options]

Continues PROMPT with a trained language model and prints the text. The model is that of --from, else of the run that CONFIG
(the config of the training) names, else of the newest run in runs/language_model.

  --from RUN            folder of a run or a snapshot, or a .safetensors or .pt file (then with CONFIG)
  --beam                the likeliest text that beam search finds, instead of drawing
  --interactive         continue each line that is typed
  --max_length N        tokens to write (100)       --temperature T   0 = always the likeliest token (0.8)
  --top_k N             draw from the N likeliest (50); 0 = all       --top_p P   smallest set of that probability (0.9)
  --beam_size N         candidates of --beam (5)    --seed N          seed of the draws (0)
  --device D            auto, cpu, cuda, cuda:1
)";

struct Request {
  bool beam = false, interactive = false;
  std::optional<std::string> from, prompt;
  config::Resolved config;
};

// Replaces --seed by --generate.seed, because in this command --seed means the seed of the draws, not that of training.
config::Arguments with_seed_of_draws(std::span<const std::string> words) {
  std::vector<std::string> all(words.begin(), words.end());
  for (std::string& word : all) {
    if (word == "--seed" || word.starts_with("--seed=")) word = "--generate." + word.substr(2);
  }
  return config::Arguments(all);
}

Request request_of(const Entry& row, config::Arguments arguments) {
  Request request;
  request.beam = arguments.flag("beam");
  request.interactive = arguments.flag("interactive");
  request.from = arguments.value("from");
  bool has_file = std::ranges::any_of(arguments.words(), [](const std::string& word) { return word.starts_with("--config"); });
  for (std::string& word : take_plain_words(row, arguments)) {
    if (!has_file && !request.prompt && names_a_config_file(word)) {
      arguments.add("--config=" + word);
      has_file = true;
    } else if (!request.prompt) {
      request.prompt = std::move(word);
    } else {
      arguments.problems().push_back(
          {"a second prompt: " + quoted(word), "millrace generate", "put a prompt of several words into quotes"});
    }
  }
  constexpr bool kWithoutItsRun = true;  // true: the run's config is left out here, because load_for_inference() reads it
  request.config = resolve_command_config(row, arguments, kWithoutItsRun).resolved;
  return request;
}

// The run folder with the newest snapshots.
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

// The options for generation and device that the user gave. These options replace those in the run's own config.
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

void note_unknown_characters(LanguageModel& model, const std::string& prompt, telemetry::Console& console) {
  constexpr std::size_t kShown = 20;
  std::vector<std::string> unknown = model.unknown_in(prompt);
  if (unknown.empty()) return;
  const std::size_t count = unknown.size();
  unknown.resize(std::min(count, kShown));
  console.notice("the model's vocabulary lacks " + joined(unknown, " ", [](const std::string& c) { return quoted(c); }) +
                 (count > kShown ? " and " + std::to_string(count - kShown) + " more" : "") +
                 ": each is read as the unknown character");
}

void interact(LanguageModel& model, bool beam, telemetry::Console& console) {
  std::string line;
  std::cerr << "type the beginning of a text; an empty line or Ctrl-D quits\n> " << std::flush;
  while (std::getline(std::cin, line) && !line.empty()) {
    note_unknown_characters(model, line, console);
    std::cout << line << model.write(line, model.generate_config(), beam) << "\n";
    std::cerr << "> " << std::flush;
  }
  std::cerr << "\n";
}

}  // namespace

int generate_command(std::span<const std::string> words) {
  config::Arguments arguments = with_seed_of_draws(words);
  if (arguments.flag("help") || arguments.flag("h")) {
    std::cout << kHelp;
    return 0;
  }
  const Entry row = entry();
  const Request request = request_of(row, std::move(arguments));
  const config::Resolved& config = request.config;

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
  note_unknown_characters(model, prompt, console);
  std::cout << prompt << model.write(prompt, model.generate_config(), request.beam) << "\n";
  return 0;
}

}  // namespace millrace::recipes::language_model
