#include "millrace/base/format.h"
#include "millrace/cli/shared/command.h"
#include "millrace/cli/shared/text.h"
#include "millrace/cli/shared/trained.h"
#include "millrace/train/report/pictures.h"

namespace millrace::cli {
namespace {

constexpr std::string_view kEvalHelp =
    R"(Prints the metrics of a trained model over its recipe's validation split, in the number format that the run trained in.

  --split SPLIT         validation, or test: samples that are in neither training nor validation
  --pictures FOLDER     draw the recipe's pictures into this folder, which is created; files of the same names are replaced
  --from PATH           run folder (its best snapshot, else the newest), snapshot folder, .safetensors or .pt file
  --run-dir RUN --model-type best|last    the same as --from, in the flags of another trainer
  --data DIR            other data than the run's
  --section.key=VALUE   overrides the run's config; a key that eval does not use is an error
  --preset, --config    only with a file of weights: the config they were trained with
  --json                as JSON

RECIPE may be left out: a run knows its recipe.
)";

constexpr const char* word_of(EvaluatedSplit split) { return split == EvaluatedSplit::test ? "test" : "validation"; }

EvaluatedSplit take_split(Arguments& arguments) {
  const std::string word = arguments.value("split").value_or("validation");
  for (const EvaluatedSplit split : {EvaluatedSplit::validation, EvaluatedSplit::test}) {
    if (word == word_of(split)) return split;
  }
  throw UsageError({"there is no split " + millrace::quoted(word), "flag --split", "write validation or test"});
}

// Writes the pictures into `folder` and returns their paths.
Json write_pictures(const std::vector<Picture>& pictures, const std::filesystem::path& folder, bool prints) {
  Json paths = Json::array();
  if (pictures.empty() && prints) print("the recipe draws no pictures\n");
  Fs& fs = Fs::real();
  for (const Picture& picture : pictures) {
    const std::filesystem::path path = folder / (picture.name + ".png");
    write_atomically(fs, path, png_of(picture));
    if (prints) print("wrote " + path.string() + "\n");
    paths.push_back(path.string());
  }
  return paths;
}

int run_eval(const Invocation& call) {
  Arguments arguments(call.words);
  const Entry& entry = take_recipe_of_run(arguments, call.recipes, "eval");
  const bool json = arguments.flag("json");
  const EvaluatedSplit split = take_split(arguments);
  const auto pictures = arguments.value("pictures");
  telemetry::Console console(telemetry::Console::Mode::automatic, json ? 2 : 1);
  Loaded loaded = load_trained(entry, arguments, "eval", console);
  console.line(description(loaded));
  // Throws before the evaluation, which may take hours, if the folder can't be made.
  if (pictures) Fs::real().create_directories(*pictures);
  const Evaluation evaluation = evaluate(loaded, console, split, pictures.has_value());
  std::vector<std::vector<std::string>> rows = {{"metric", "value"}};
  Json values = Json::object();
  for (const auto& [name, value] : evaluation.metrics) {
    rows.push_back({name, significant(value, 6)});
    values[name] = value;
  }
  Json report = {{"from", loaded.snapshot.string()}, {"split", word_of(split)}, {"metrics", std::move(values)}};
  if (!json) print(table(rows));
  if (pictures) report["pictures"] = write_pictures(evaluation.pictures, *pictures, !json);
  if (json) print_json(report);
  return 0;
}

}  // namespace

constinit const Command kEval = {
    .name = "eval",
    .arguments = "RECIPE --from PATH [--data DIR] [--split SPLIT] [--pictures FOLDER] [--section.key=VALUE]... [--json]",
    .summary = "metrics of a trained model over the validation or test split",
    .group = "Train and use a model",
    .help = kEvalHelp,
    .run = run_eval};

}  // namespace millrace::cli
