#include "millrace/cli/bench/bench_runs.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/cli/bench/child_run.h"
#include "millrace/config/schema.h"

namespace millrace::cli {

ScratchFolder::ScratchFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "millrace-bench-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr)
    throw UsageError({"can't make a folder for the runs", name, "set TMPDIR to a folder that can be written"});
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code none;
  std::filesystem::remove_all(path_, none);
}

std::string flag(std::string_view key, std::string_view value) { return std::string("--").append(key).append("=").append(value); }

std::vector<std::string> words_of_run(const BenchRuns& runs, const std::string& off) {
  std::vector<std::string> words = {"train"};
  words.insert(words.end(), runs.words.begin(), runs.words.end());
  // Passes options as config keys, because a later word overrides an earlier one for the same key. If the user's words had
  // --run.dir, an option --run would not override it, and --fresh would replace the user's run. If they had --train.off, an
  // option --off would leave all rows on.
  std::map<std::string, std::string> keys = {{"run.dir", (runs.folder / "run").string()},
                                             {"train.max_steps", std::to_string(runs.steps)},
                                             {"train.resume", "never"},
                                             {"train.validate_batches", "1"},
                                             {"log.every", std::to_string(runs.steps)},
                                             {"log.tensorboard", "false"},
                                             {"log.images", "false"}};
  std::string rows = joined(runs.off, ",");
  if (!off.empty()) rows += (rows.empty() ? "" : ",") + off;
  if (!rows.empty()) keys["train.off"] = rows;
  for (const auto& [key, value] : keys) words.push_back(flag(key, value));
  words.insert(words.end(), {"--fresh", "--json"});
  return words;
}

Json run_once(const BenchRuns& runs, const std::string& off) {
  std::vector<std::string> words = words_of_run(runs, off);
  if (runs.ranks == 1) return child_json(words);
  words.insert(words.begin(), {"launch", "--nproc", std::to_string(runs.ranks), "--logs", (runs.folder / "logs").string()});
  child_run(words);
  // Reads the summary from its file, because `launch` puts the rank's number before each line of output.
  std::ifstream summary(runs.folder / "run" / "summary.json");
  return Json::parse(summary);
}

SeenRun seen_in(const Json& summary) {
  return {.step_ms = summary["step_ms"]["p50"],
          .memory = summary["peak_memory_bytes"],
          .loss = summary["loss"]["last"].is_number() ? summary["loss"]["last"].get<double>() : std::nan(""),
          .state = summary["state_sha256"]};
}

void pin_choices(BenchRuns& runs, const Json& summary, const Json& config) {
  for (const Json& choice : summary["choices"]) {
    const std::string option = choice.value("option", "");
    const bool is_key = option.find('.') != std::string::npos && config.contains(config::pointer_to(option));
    if (choice.value("by_trial", false) && is_key) runs.words.push_back(flag(option, choice.value("value", "")));
  }
}

}  // namespace millrace::cli
