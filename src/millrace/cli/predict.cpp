#include "millrace/base/format.h"
#include "millrace/cli/command.h"
#include "millrace/cli/text.h"
#include "millrace/cli/trained.h"
#include "millrace/snapshot/snapshot.h"

namespace millrace::cli {
namespace {

constexpr std::string_view kPredictHelp =
    R"(Runs a trained model on new input: tensors in, tensors out. Which names and shapes a recipe takes and gives is in its
README; a wrong one is named.

  --from PATH           run folder (its best snapshot, else the newest), snapshot folder, .safetensors or .pt file
  --input FILE          .safetensors or .pt file with the inputs
  --output FILE         .safetensors or .pt file to write
  --section.key=VALUE   over the run's config, such as --device.name=cpu
  --preset, --config    with a file of weights only: the config they were trained with
  --json                names, shapes and types of the outputs as JSON
)";

std::string shape_text(const at::Tensor& tensor) { return to_text(tensor.sizes().vec()); }

int run_predict(const Invocation& call) {
  Arguments arguments(call.words);
  const Entry& entry = take_recipe(arguments, call.recipes, "predict");
  const bool json = arguments.flag("json");
  const auto input = arguments.value("input");
  const auto output = arguments.value("output");
  if (!input || !output) {
    throw UsageError({std::string("millrace predict needs ") + (input ? "--output" : "--input"), "millrace predict",
                      "write millrace predict " + entry.name + " --from RUN --input F.safetensors --output G.safetensors"});
  }
  telemetry::Console console(telemetry::Console::Mode::automatic, json ? 2 : 1);
  const Tensors inputs = snapshot::read_tensors(*input);
  const Loaded loaded = load_trained(entry, arguments, "predict", console);
  console.line(loaded.which);
  const Tensors outputs = loaded.recipe->predict(inputs);
  snapshot::write_tensors(Fs::real(), *output, outputs);
  Json all = Json::object();
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, tensor] : outputs) {
    all[name] = {{"shape", tensor.sizes().vec()}, {"dtype", std::string(tensor.dtype().name())}};
    rows.push_back({"  " + name, shape_text(tensor), std::string(tensor.dtype().name())});
  }
  json ? print_json(all) : print("wrote " + *output + "\n" + table(rows));
  return 0;
}

}  // namespace

constinit const Command kPredict = {
    .name = "predict",
    .arguments = "RECIPE --from PATH --input FILE --output FILE [--section.key=VALUE]... [--json]",
    .summary = "run a trained model on new input, tensors in and out",
    .group = "Train and use a model",
    .help = kPredictHelp,
    .run = run_predict};

}  // namespace millrace::cli
