#include <algorithm>

#include "millrace/base/format.h"
#include "millrace/cli/inspect/weights_file.h"
#include "millrace/cli/shared/command.h"
#include "millrace/format/pt.h"
#include "millrace/snapshot/snapshot.h"

namespace millrace::cli {
namespace {

constexpr std::string_view kImportHelp =
    R"(Converts a file of Python's torch.save into a file that has only tensors. No code in it is run: an object of a class is
read as its attributes, and a call of a function is an error that names the function. A tensor's name is its path in the
file, such as "model.layer.weight".

  FILE                  .pt or .pth of torch 1.6 or later, or .safetensors
  --to FILE             .safetensors, or .pt or .pth
  --part NAME           only the tensors below this name, which is removed from their names: --part model_state_dict
  --json                as JSON

predict, eval and generate read .pt files of weights as they are: --from FILE.pt.
)";

std::string values_of(const std::filesystem::path& path) {
  constexpr std::size_t kShown = 10;
  if (!format::looks_like_pt(path)) return "";
  const format::PtFile file(path);
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, file.values().size()); ++i) {
    text += (i == 0 ? "" : ", ") + file.values()[i].name + " = " +
            file.values()[i].value.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  const std::size_t more = file.values().size() - std::min(kShown, file.values().size());
  return more == 0 ? text : text + " and " + std::to_string(more) + " more";
}

Tensors part_of(const Tensors& all, const std::string& part) {
  const std::string prefix = part + ".";
  Tensors tensors;
  for (const auto& [name, tensor] : all)
    if (name.starts_with(prefix)) tensors.emplace(name.substr(prefix.size()), tensor);
  if (!tensors.empty()) return tensors;
  std::vector<std::string> parts;
  for (const auto& [name, tensor] : all) {
    const std::string first = name.substr(0, name.find('.'));
    if (parts.empty() || parts.back() != first) parts.push_back(first);
  }
  throw UsageError({"no tensor is below " + quoted(part), "flag --part", "the file has " + joined(parts, ", ")});
}

int run_import(const Invocation& call) {
  Arguments arguments(call.words);
  const bool json = arguments.flag("json");
  const auto part = arguments.value("part");
  const std::filesystem::path to = take_target(arguments, "import");
  const auto from = arguments.positional();
  arguments.finish("import");
  if (!from)
    throw UsageError({"millrace import needs a file", "millrace import", "write millrace import FILE.pt --to FILE.safetensors"});
  refuse_same_file(*from, to, "--to");
  const Tensors all = snapshot::read_tensors(*from);
  write_weights(to, part ? part_of(all, *part) : all, {.from = *from, .left_out = values_of(*from)}, json);
  return 0;
}

}  // namespace

constinit const Command kImport = {.name = "import",
                                   .arguments = "FILE --to FILE [--part NAME] [--json]",
                                   .summary = "weights of a Python .pt file as .safetensors",
                                   .group = "Train and use a model",
                                   .help = kImportHelp,
                                   .run = run_import};

}  // namespace millrace::cli
