#include <unistd.h>

#include <cstdio>

#include "millrace/base/format.h"
#include "millrace/cli/inspect/tensor_file.h"
#include "millrace/cli/inspect/weights_file.h"
#include "millrace/cli/shared/command.h"
#include "millrace/cli/shared/text.h"
#include "millrace/cli/shared/trained.h"
#include "millrace/train/run/prediction.h"

namespace millrace::cli {
namespace {

constexpr std::string_view kPredictHelp =
    R"(Runs a trained model on new input: tensors in, tensors out, in batches of rows, without gradients, in the number format
that the run trained in.

  --from PATH           run folder (its best snapshot, else the newest), snapshot folder, .safetensors or .pt file
  --input FILE          the input: .npy, .npz, .safetensors, .pt, .pth, .h5 or .hdf5
  --output FILE         the output: a file of any of these kinds; .npy only if there is a single output
  --batch-size N        rows at a time, which determines the memory; default: the run's data.batch_size
  --section.key=VALUE   overrides the run's config, such as --device.name=cpu; a key that predict does not use is an error
  --preset, --config    only with a file of weights: the config they were trained with
  --json                names, shapes and types of the outputs as JSON

RECIPE may be left out: a run knows its recipe. A .npy file's array has no name: it is the recipe's only input.
)";

std::vector<std::vector<std::string>> rows_of(const char* heading, const std::vector<PredictField>& fields) {
  std::vector<std::vector<std::string>> rows;
  rows.reserve(fields.size());
  for (const PredictField& field : fields)
    rows.push_back({std::string("  ") + heading, field.name, std::string(name_of(field.dtype)), field.shape, field.help});
  return rows;
}

std::string tensors_of(const Entry& entry) {
  const std::string name = "\nTensors of recipe " + entry.name + "\n";
  if (entry.predicts.inputs.empty()) return name + "  The recipe does not describe its inputs: see its README.\n";
  std::vector<std::vector<std::string>> rows = {{"  ", "name", "dtype", "shape", ""}};
  for (auto& row : rows_of("input", entry.predicts.inputs)) rows.push_back(std::move(row));
  for (auto& row : rows_of("output", entry.predicts.outputs)) rows.push_back(std::move(row));
  return name + table(rows);
}

// The help about the recipe in the call's words; if they name no recipe, about all recipes.
std::string predict_help(const Invocation& call) {
  for (const std::string& word : call.words) {
    if (word.starts_with("-")) continue;
    Arguments named(std::span(&word, 1));
    return tensors_of(take_recipe(named, call.recipes, "predict"));
  }
  std::string text;
  for (const Entry& entry : call.recipes) text += tensors_of(entry);
  return text;
}

// Shows the number of rows done, in a line that is overwritten. Shown on terminals only.
class RowsLine {
 public:
  ~RowsLine() {
    if (drawn_) std::fputs("\r\x1b[K", stderr);
  }
  void draw(std::int64_t done, std::int64_t rows) {
    if (::isatty(STDERR_FILENO) == 0) return;
    drawn_ = true;
    std::fprintf(stderr, "\r%s of %s rows", with_commas(done).c_str(), with_commas(rows).c_str());
  }

 private:
  bool drawn_ = false;
};

struct Files {
  std::string input, output;
  TensorFormat input_format, output_format;
};

Files take_files(const Entry& entry, Arguments& arguments) {
  const auto input = arguments.value("input");
  const auto output = arguments.value("output");
  if (!input || !output) {
    throw UsageError({std::string("millrace predict needs ") + (input ? "--output" : "--input"), "millrace predict",
                      "write millrace predict " + entry.name + " --from RUN --input F.npy --output G.npy"});
  }
  Files files{*input, *output, tensor_format(*input, "--input"), tensor_format(*output, "--output")};
  const auto one = [&](TensorFormat format, const std::vector<PredictField>& fields, const char* flag, const char* what) {
    if (format != TensorFormat::npy || fields.size() == 1 || (fields.empty() && flag == std::string("--output"))) return;
    throw UsageError(
        {fields.empty()
             ? "a .npy file's array has no name, and recipe " + entry.name + " does not say what it " + what
             : "a .npy file holds one array, and recipe " + entry.name + " " + what + " " + std::to_string(fields.size()),
         std::string("flag ") + flag,
         "give a .npz or .safetensors file; millrace predict " + entry.name + " --help names the tensors"});
  };
  refuse_same_file(files.input, files.output, "--output");
  one(files.input_format, entry.predicts.inputs, "--input", "takes");
  one(files.output_format, entry.predicts.outputs, "--output", "gives");
  return files;
}

void report(const std::string& output, const std::vector<Field>& fields, bool json) {
  Json all = Json::object();
  std::vector<std::vector<std::string>> rows;
  for (const Field& field : fields) {
    all[field.name] = {{"shape", field.shape}, {"dtype", name_of(field.dtype)}};
    rows.push_back({"  " + field.name, std::string(name_of(field.dtype)), to_text(field.shape)});
  }
  json ? print_json(all) : print("wrote " + output + "\n" + table(rows));
}

int run_predict(const Invocation& call) {
  Arguments arguments(call.words);
  const Entry& entry = take_recipe_of_run(arguments, call.recipes, "predict");
  const bool json = arguments.flag("json");
  const Files files = take_files(entry, arguments);
  telemetry::Console console(telemetry::Console::Mode::automatic, json ? 2 : 1);
  const std::string unnamed = entry.predicts.inputs.size() == 1 ? entry.predicts.inputs[0].name : "";
  const auto reader = open_tensors(files.input, files.input_format, unnamed);
  const PredictionInput input{
      .origin = files.input, .tensors = reader->fields(), .read = [&](auto... place) { return reader->read(place...); }};
  static_cast<void>(tensors_for(entry, input));  // reports a mistake in the input before the model is read
  Loaded loaded = load_trained(entry, arguments, "predict", console);
  refuse_same_file(loaded.snapshot, files.output, "--output");
  console.line(description(loaded));
  TensorWriter writer(files.output, files.output_format);
  PredictionReport done;
  {
    RowsLine line;
    done = predict_rows(
        entry, loaded, input, [&](const Tensors& rows) { writer.append(rows); },
        [&](std::int64_t rows, std::int64_t all) { line.draw(rows, all); });
  }
  for (const std::string& warning : done.warnings) console.warning(warning);
  report(files.output, writer.finish(), json);
  return 0;
}

}  // namespace

constinit const Command kPredict = {
    .name = "predict",
    .arguments = "RECIPE --from PATH --input FILE --output FILE [--section.key=VALUE]... [--json]",
    .summary = "run a trained model on new input, tensors in and out",
    .group = "Train and use a model",
    .help = kPredictHelp,
    .run = run_predict,
    .more_help = predict_help};

}  // namespace millrace::cli
