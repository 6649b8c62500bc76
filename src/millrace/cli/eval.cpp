#include "millrace/base/format.h"
#include "millrace/cli/command.h"
#include "millrace/cli/text.h"
#include "millrace/cli/trained.h"

namespace millrace::cli {
namespace {

constexpr std::string_view kEvalHelp =
    R"(Prints the metrics of a trained model over its recipe's validation split, in the number format that the run trained in.

  --from PATH           run folder (its best snapshot, else the newest), snapshot folder, .safetensors or .pt file
  --data DIR            other data than the run's
  --section.key=VALUE   over the run's config; a key that eval does not use is refused
  --preset, --config    with a file of weights only: the config they were trained with
  --json                as JSON

RECIPE may be left out: a run knows its recipe.
)";

int run_eval(const Invocation& call) {
  Arguments arguments(call.words);
  const Entry& entry = take_recipe_of_run(arguments, call.recipes, "eval");
  const bool json = arguments.flag("json");
  telemetry::Console console(telemetry::Console::Mode::automatic, json ? 2 : 1);
  Loaded loaded = load_trained(entry, arguments, "eval", console);
  console.line(told(loaded));
  const metrics::Means metrics = evaluate(loaded, console);
  std::vector<std::vector<std::string>> rows = {{"metric", "value"}};
  Json values = Json::object();
  for (const auto& [name, value] : metrics) {
    rows.push_back({name, significant(value, 6)});
    values[name] = value;
  }
  json ? print_json({{"from", loaded.snapshot.string()}, {"metrics", std::move(values)}}) : print(table(rows));
  return 0;
}

}  // namespace

constinit const Command kEval = {.name = "eval",
                                 .arguments = "RECIPE --from PATH [--data DIR] [--section.key=VALUE]... [--json]",
                                 .summary = "metrics of a trained model over the validation split",
                                 .group = "Train and use a model",
                                 .help = kEvalHelp,
                                 .run = run_eval};

}  // namespace millrace::cli
