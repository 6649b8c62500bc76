// Short runs of a recipe, each in a process of its own, for benches that compare them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "millrace/base/json.h"

namespace millrace::cli {

// A folder of this process below the system's temporary one, removed with everything in it. UsageError when it can't be made.
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

// The runs of a bench: alike but for the rows that are off.
struct BenchRuns {
  std::vector<std::string> words;  // of each run: recipe, files, keys
  std::filesystem::path folder;
  std::int64_t steps = 20;
  std::int64_t ranks = 1;  // more than 1: with `launch`
};

// What one whole run measured.
struct SeenRun {
  double step_ms = 0;  // median
  double memory = 0;   // bytes, the most there was
  double loss = 0;     // the last; NaN when it is no number
  std::string state;   // hash of the weights and everything else that a snapshot holds
};

[[nodiscard]] std::string flag(std::string_view key, std::string_view value);

// The summary of a run with the rows of `off` ("a,b", "all", or "" for none) turned off. UsageError with its last lines when it
// fails.
[[nodiscard]] Json run_once(const BenchRuns& runs, const std::string& off);
[[nodiscard]] SeenRun seen_in(const Json& summary);

// Choices that a trial made would differ between runs: those of this run's summary that are keys of `config` are kept in the
// words of all further runs. Others, such as the way of one operation, no key can name.
void pin_choices(BenchRuns& runs, const Json& summary, const Json& config);

}  // namespace millrace::cli
