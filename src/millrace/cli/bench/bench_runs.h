// Short runs of a recipe, each in a separate process, for benchmarks that compare runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "millrace/base/json.h"

namespace millrace::cli {

// A folder for this process inside the system's temporary folder. The destructor removes it with its content. Throws UsageError
// if it can't be made.
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

// The runs of a benchmark. They differ only in which rows of the switchboard are turned off.
struct BenchRuns {
  std::vector<std::string> words;  // the words of each command line: recipe, files, keys
  std::vector<std::string> off;    // the rows that the config turns off in every run
  std::filesystem::path folder;
  std::int64_t steps = 20;
  std::int64_t ranks = 1;  // if above 1, `millrace launch` starts the run
};

// What a whole run measured.
struct SeenRun {
  double step_ms = 0;  // the median time of a step
  double memory = 0;   // the peak memory of the run, in bytes
  double loss = 0;     // the last loss; NaN if it is not finite
  std::string state;   // hash of the state in the last snapshot: the weights and everything else
};

[[nodiscard]] std::string flag(std::string_view key, std::string_view value);

// The words of a run that turns off the rows of `off` ("a,b", "all", or "").
[[nodiscard]] std::vector<std::string> words_of_run(const BenchRuns& runs, const std::string& off);

// Makes a run that turns off the rows of `off` ("a,b", "all", or "") and returns the run's summary. Throws UsageError with the
// run's last lines if the run fails.
[[nodiscard]] Json run_once(const BenchRuns& runs, const std::string& off);
[[nodiscard]] SeenRun seen_in(const Json& summary);

// Adds to the words of all further runs the choices that the run of `summary` made by trials. Otherwise trials could choose
// other values in each run. Only choices that are keys of `config` are added; the implementation of an operation is not such a
// key.
void pin_choices(BenchRuns& runs, const Json& summary, const Json& config);

}  // namespace millrace::cli
