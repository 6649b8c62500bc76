// Short runs of a recipe, each in a separate process, for benches that compare them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "millrace/base/json.h"

namespace millrace::cli {

// A folder of this process in the system's temporary folder, removed with its content. UsageError if it can't be made.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

// The runs of a bench, which differ only in the rows that are off.
struct BenchRuns {
  std::vector<std::string> words;  // words of each run: recipe, files, keys
  std::filesystem::path folder;
  std::int64_t steps = 20;
  std::int64_t ranks = 1;  // above 1 the run is started by `launch`
};

// The measurements of one whole run.
struct SeenRun {
  double step_ms = 0;  // median
  double memory = 0;   // bytes, at the peak
  double loss = 0;     // the last loss; NaN if it is not finite
  std::string state;   // hash of the weights and the rest of a snapshot's state
};

[[nodiscard]] std::string flag(std::string_view key, std::string_view value);

// Runs once with the rows of `off` ("a,b", "all", or "" for none) turned off and returns the summary. UsageError with the run's
// last lines if it fails.
[[nodiscard]] Json run_once(const BenchRuns& runs, const std::string& off);
[[nodiscard]] SeenRun seen_in(const Json& summary);

// Fixes, in the arguments of all further runs, what the trials of this run chose, since they could choose differently in each
// run. Only choices that are keys of `config` can be fixed, so the implementation of an operation is not.
void pin_choices(BenchRuns& runs, const Json& summary, const Json& config);

}  // namespace millrace::cli
