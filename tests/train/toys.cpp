#include "toys.h"

#include <unistd.h>

#include <atomic>
#include <fstream>

namespace millrace::toys {

RunOutcome run(const Entry& entry, const std::filesystem::path& folder, const Json& overrides, bool fresh, Fs* fs) {
  const config::Schema schema = schema_of(entry);
  const auto aliases = aliases_of(entry);
  config::Layers layers(schema, aliases);
  layers.add_values(entry.defaults, "recipe");
  layers.add_values({{"train.off", {"rehearsal"}}, {"device.kernels", "ours"}}, "toys");
  layers.add_values(overrides, "test");
  if (!folder.empty()) layers.add_values({{"run.dir", folder.string()}}, "test");
  telemetry::Console console(telemetry::Console::Mode::quiet);
  RunRequest request;
  request.entry = &entry;
  request.config = layers.resolve();
  request.console = &console;
  request.fresh = fresh;
  request.fs = fs;
  return run_training(request);
}

std::vector<Json> log_of(const std::filesystem::path& run, const std::string& kind) {
  std::vector<Json> lines;
  std::ifstream file(run / "log.jsonl");
  for (std::string line; std::getline(file, line);) {
    Json json = Json::parse(line, nullptr, false);
    if (json.is_object() && json.value("kind", "") == kind) lines.push_back(std::move(json));
  }
  return lines;
}

TemporaryFolder::TemporaryFolder() {
  static std::atomic<int> count{0};
  // Runs sync thousands of files: where there is a file system in memory, that costs nothing.
  const std::filesystem::path memory = "/dev/shm";
  const std::filesystem::path parent = ::access(memory.c_str(), W_OK) == 0 ? memory : std::filesystem::temp_directory_path();
  path_ = parent / ("millrace-test-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
  std::filesystem::create_directories(path_);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace millrace::toys
