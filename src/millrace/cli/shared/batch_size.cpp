#include "millrace/cli/shared/batch_size.h"

#include "millrace/base/error.h"
#include "millrace/measure/memory_search.h"
#include "millrace/train/run_folder/run_folder.h"

namespace millrace::cli {
namespace {

constexpr std::int64_t kLeastBatches = 16;

std::string why(const std::string& bound) {
  if (bound == "batches") return "twice the size leaves fewer than " + std::to_string(kLeastBatches) + " batches an epoch";
  if (bound == "data") return "it takes the whole training set";
  return bound == "config" ? "a larger one is refused" : "a larger one runs out of memory";
}

}  // namespace

void choose_batch_size(RunRequest& request) {
  Json& data = request.config.values["data"];
  if (data["batch_size"] != "auto") return;
  const std::filesystem::path folder =
      destination_of_run(request.entry->name, config::read<RunConfig>(request.config.values).run).folder;
  if (!request.fresh && std::filesystem::exists(folder / "config.json")) {
    const Json saved = read_config(Fs::real(), folder).values;
    if (saved.contains("data") && saved["data"].value("batch_size", Json()).is_number()) {
      data["batch_size"] = saved["data"]["batch_size"];
      request.console->notice("data.batch_size " + data["batch_size"].dump() + ": as the run in " + folder.string() + " has it");
      return;
    }
  }
  const Json found = find_max_batch(request, {.least_batches = kLeastBatches});
  if (found["batch_size"] == 0) {
    throw DeviceError({"not even a batch of one sample fits into memory", "data.batch_size=auto",
                       "see how much memory a step needs: millrace estimate " + request.entry->name});
  }
  data["batch_size"] = found["batch_size"];
  request.config.origins["data.batch_size"] += ": " + found["batch_size"].dump();
  request.console->notice("data.batch_size " + found["batch_size"].dump() + ": the largest that ran whole steps; " +
                          why(found["bound"].get<std::string>()));
}

}  // namespace millrace::cli
