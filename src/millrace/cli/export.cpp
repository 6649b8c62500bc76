#include "millrace/cli/command.h"
#include "millrace/cli/weights_file.h"
#include "millrace/train/weights.h"

namespace millrace::cli {
namespace {

constexpr std::string_view kExportHelp =
    R"(Writes the weights of a trained model into one file for other programs, under the names they have here. In Python:
torch.load(FILE.pt, weights_only=True), or safetensors.torch.load_file(FILE.safetensors).

  --from PATH           run folder (its best snapshot, else the newest), snapshot folder, .safetensors or .pt file
  --to FILE             .safetensors, or .pt or .pth as Python's torch.save writes it
  --json                as JSON
)";

int run_export(const Invocation& call) {
  Arguments arguments(call.words);
  const bool json = arguments.flag("json");
  const auto from = arguments.value("from");
  const std::filesystem::path to = take_target(arguments, "export");
  arguments.finish("export");
  if (!from)
    throw UsageError(
        {"millrace export needs a trained model", "millrace export", "add --from RUN; millrace runs lists the runs"});
  telemetry::Console console(telemetry::Console::Mode::automatic, json ? 2 : 1);
  const Weights weights = load_weights(Fs::real(), *from, console);
  Tensors all;  // of one module, so no name stands in two of its files
  for (const auto& [name, tensors] : weights.models) all.insert(tensors.begin(), tensors.end());
  write_weights(to, all, weights.which, "", json);
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
