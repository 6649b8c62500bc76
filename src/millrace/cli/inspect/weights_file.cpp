#include "millrace/cli/inspect/weights_file.h"

#include "millrace/base/format.h"
#include "millrace/cli/shared/text.h"
#include "millrace/snapshot/snapshot.h"

namespace millrace::cli {

std::filesystem::path take_target(Arguments& arguments, const std::string& command) {
  const std::string place = "millrace " + command;
  const auto to = arguments.value("to");
  if (!to) throw UsageError({place + " needs a file to write", place, "add --to FILE.safetensors or --to FILE.pt"});
  std::filesystem::path path = *to;
  if (path.extension() != ".safetensors" && !snapshot::is_pt_name(path)) {
    throw UsageError(
        {"can't tell what kind of file " + *to + " should be", "flag --to", "let its name end in .safetensors, .pt or .pth"});
  }
  return path;
}

void refuse_same_file(const std::filesystem::path& from, const std::filesystem::path& to, const std::string& flag) {
  std::error_code ignored;
  if (!std::filesystem::equivalent(from, to, ignored)) return;
  throw UsageError({to.string() + " is the input file, which the output would replace", "flag " + flag, "give another name"});
}

void write_weights(const std::filesystem::path& to, const Tensors& tensors, const WeightsFile& about, bool json) {
  std::map<std::string, std::string> metadata = about.metadata;
  metadata["format"] = "pt";  // required by Python's loaders; "pt" means that the tensors are laid out as in PyTorch
  snapshot::write_tensors(Fs::real(), to, tensors, metadata);
  std::int64_t elements = 0;
  for (const auto& [name, tensor] : tensors) elements += tensor.numel();
  std::vector<std::string> beside;
  for (const std::filesystem::path& file : about.beside) beside.push_back(file.string());
  if (json) {
    print_json({{"from", about.from},
                {"to", to.string()},
                {"tensors", tensors.size()},
                {"elements", elements},
                {"beside", beside},
                {"left_out", about.left_out}});
    return;
  }
  print("wrote " + to.string() + ": " + with_commas(static_cast<std::int64_t>(tensors.size())) + " tensors, " +
        with_commas(elements) + " elements, from " + about.from + "\n" +
        (beside.empty() ? "" : "beside it: " + joined(beside, ", ") + "\n") +
        (about.left_out.empty() ? "" : "left out: " + about.left_out + "\n"));
}

}  // namespace millrace::cli
