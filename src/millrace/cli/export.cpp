#include <algorithm>

#include "millrace/base/format.h"
#include "millrace/cli/inspect/weights_file.h"
#include "millrace/cli/shared/command.h"
#include "millrace/format/safetensors.h"
#include "millrace/snapshot/snapshot.h"
#include "millrace/train/assembly/weights.h"
#include "millrace/train/run_folder/run_folder.h"

namespace millrace::cli {
namespace {

constexpr std::string_view kExportHelp =
    R"(Writes the weights of a trained model into one file for other programs, under the names they have here. In Python:
torch.load(FILE.pt, weights_only=True), or safetensors.torch.load_file(FILE.safetensors).

  --from PATH           run folder (its best snapshot, else the newest), snapshot folder, .safetensors or .pt file
  --to FILE             .safetensors, or .pt or .pth as Python's torch.save writes it
  --json                as JSON

The metadata of a .safetensors file contains the recipe, the step and the config of the run, as JSON. The recipe's state besides its
weights is written next to the file: FILE.tokenizer.json (the vocabulary of a language model), FILE.state.safetensors (tensors, such
as foreground components). A .pt or .pth file has no place for metadata, so FILE.run.json (recipe, step, config) is written next to
it. RECIPE may be given, but is not needed.
)";

// Writes the recipe's part of the snapshot: each member of its JSON into a separate file, and all its tensors into one more
// file.
std::vector<std::filesystem::path> write_state(const std::filesystem::path& to, const State& state) {
  std::vector<std::filesystem::path> written;
  const auto companion = [&](const std::string& suffix) {
    std::filesystem::path path = to;
    return path.replace_extension(suffix);
  };
  for (const auto& [name, value] : state.json.items()) {
    written.push_back(companion("." + name + ".json"));
    write_atomically(Fs::real(), written.back(), value.dump(2) + "\n");
  }
  if (state.tensors.empty()) return written;
  written.push_back(companion(".state.safetensors"));
  snapshot::write_tensors(Fs::real(), written.back(), state.tensors, {{"format", "pt"}});
  return written;
}

std::map<std::string, std::string> metadata_of(const Weights& weights) {
  if (weights.run.empty()) {  // true if the weights come from a file that an earlier export wrote
    std::map<std::string, std::string> known;
    if (weights.path.extension() == ".safetensors") known = format::SafetensorsFile(weights.path).metadata();
    return known;
  }
  Fs& fs = Fs::real();
  return {{"recipe", recipe_of_run(fs, weights.run)},
          {"step", std::to_string(weights.step)},
          {"config", read_config(fs, weights.run).values.dump()}};
}

// Writes the metadata into a separate file, for formats that can't hold metadata.
std::filesystem::path write_about(std::filesystem::path to, const std::map<std::string, std::string>& metadata) {
  Json about = metadata;
  const auto parsed = [&](const char* key) {
    if (!metadata.contains(key)) return;
    Json value = Json::parse(metadata.at(key), nullptr, /*allow_exceptions=*/false);
    if (!value.is_discarded()) about[key] = std::move(value);
  };
  parsed("step");
  parsed("config");
  write_atomically(Fs::real(), to.replace_extension(".run.json"), about.dump(2) + "\n");
  return to;
}

// A text such as "best snapshot, step 600 of runs/x (best by val_loss 0.1234; the newest snapshot is step 800)".
std::string description(const Weights& weights) {
  if (weights.newest_step == 0) return weights.which;
  const std::string newest = weights.newest_step == weights.step
                                 ? "it is the newest snapshot too"
                                 : "the newest snapshot is step " + with_commas(weights.newest_step);
  return weights.which + (weights.best.empty() ? "" : " (best by " + weights.best + "; " + newest + ")");
}

// Adds to `all` the tensors that only files of the recipe's original program have. Returns the recipe's notes.
std::vector<std::string> complete(std::span<const Entry> recipes, const Weights& weights, Tensors& all) {
  if (weights.run.empty()) return {};
  const std::string recipe = recipe_of_run(Fs::real(), weights.run);
  const auto entry = std::find_if(recipes.begin(), recipes.end(), [&](const Entry& row) { return row.name == recipe; });
  if (entry == recipes.end() || !entry->complete_weights) return {};
  return entry->complete_weights(all, read_config(Fs::real(), weights.run).values);
}

int run_export(const Invocation& call) {
  Arguments arguments(call.words);
  for (std::size_t i = 0; i < call.words.size(); ++i) {
    const std::vector<std::string> recipes = names_of(call.recipes);
    const bool is_value = i > 0 && (call.words[i - 1] == "--from" || call.words[i - 1] == "--to");
    if (is_value || std::find(recipes.begin(), recipes.end(), with_underscores(call.words[i])) == recipes.end()) continue;
    arguments.remove(i);
    break;
  }
  const bool json = arguments.flag("json");
  const auto from = arguments.value("from");
  const std::filesystem::path to = take_target(arguments, "export");
  arguments.finish("export");
  if (!from)
    throw UsageError({"millrace export needs a trained model", "millrace export",
                      "add --from RUN; to list the runs below ./runs: millrace runs"});
  refuse_same_file(*from, to, "--to");
  telemetry::Console console(telemetry::Console::Mode::automatic, json ? 2 : 1);
  const Weights weights = load_weights(Fs::real(), *from, console);
  Tensors all;  // all tensors belong to one module, so no name occurs in two files
  for (const auto& [name, tensors] : weights.models) all.insert(tensors.begin(), tensors.end());
  const std::vector<std::string> notes = complete(call.recipes, weights, all);
  WeightsFile about{.from = description(weights), .metadata = metadata_of(weights), .beside = write_state(to, weights.recipe)};
  if (snapshot::is_pt_name(to) && about.metadata.contains("recipe")) about.beside.push_back(write_about(to, about.metadata));
  write_weights(to, all, about, json);
  for (const std::string& note : notes) console.notice(note);
  return 0;
}

}  // namespace

constinit const Command kExport = {.name = "export",
                                   .arguments = "--from PATH --to FILE [--json]",
                                   .summary = "a trained model's weights as .safetensors or .pt, for other programs",
                                   .group = "Train and use a model",
                                   .help = kExportHelp,
                                   .run = run_export};

}  // namespace millrace::cli
