#include "millrace/cli/trained.h"

#include <filesystem>

#include "millrace/cli/command_config.h"

namespace millrace::cli {

Loaded load_trained(const Entry& entry, Arguments& arguments, const std::string& command, telemetry::Console& console) {
  const std::string place = "millrace " + command;
  const auto from = arguments.value("from");
  if (!from) {
    throw UsageError(
        {place + " needs a trained model", place,
         "add --from with a run folder (runs/" + entry.name + "/...), a snapshot folder, a .safetensors or a .pt file"});
  }
  if (!std::filesystem::exists(*from))
    throw UsageError({"there is no file or folder " + *from, "flag --from", "millrace runs lists the runs below ./runs"});
  if (std::filesystem::is_directory(*from)) {
    const Json overrides = config_overrides(entry, arguments);
    keep_memory_unless_off(std::vector<std::string>{});
    return load_for_inference(entry, *from, nullptr, overrides, console);
  }
  const CommandConfig config = resolve_command_config(entry, arguments);
  keep_memory_unless_off(config.resolved);
  return load_for_inference(entry, *from, &config.resolved, Json::object(), console);
}

}  // namespace millrace::cli
