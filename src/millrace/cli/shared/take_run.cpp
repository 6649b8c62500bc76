#include "millrace/cli/shared/take_run.h"

#include "millrace/cli/shared/arguments.h"
#include "millrace/train/run/command_config.h"

namespace millrace::cli {

RunRequest take_run(const Entry& entry, Arguments& arguments, telemetry::Console& console) {
  CommandConfig config = resolve_command_config(entry, arguments);
  keep_memory_unless_off(config.resolved);
  RunRequest request;
  request.entry = &entry;
  request.config = std::move(config.resolved);
  request.preset = std::move(config.preset);
  request.console = &console;
  return request;
}

}  // namespace millrace::cli
