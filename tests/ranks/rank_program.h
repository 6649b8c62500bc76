// The program run as one or several processes in a separate folder, and the snapshots that it saved.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "millrace/snapshot/snapshot.h"

namespace millrace::test {

using Environment = std::vector<std::pair<std::string, std::string>>;

class RankProgram {
 public:
  explicit RankProgram(const std::string& recipe, std::filesystem::path program = MILLRACE_PROGRAM);
  ~RankProgram();
  RankProgram(const RankProgram&) = delete;
  RankProgram& operator=(const RankProgram&) = delete;

  // The arguments of a run of `steps` steps; the batch per rank is chosen so that `ranks` of them make the same global batch.
  [[nodiscard]] std::vector<std::string> words(const std::string& run, int ranks, int steps,
                                               const std::vector<std::string>& more = {}) const;
  [[nodiscard]] std::vector<std::string> launched(int ranks, std::vector<std::string> words,
                                                  const std::vector<std::string>& options = {}) const;
  pid_t start(const std::vector<std::string>& words, const Environment& environment = {},
              const std::string& output = "output.txt");
  int finish(pid_t child);  // returns the exit code; 128 + n after signal n
  int run(const std::vector<std::string>& words, const Environment& environment = {});
  [[nodiscard]] std::string output(const std::string& name = "output.txt") const;
  [[nodiscard]] std::string last_error() const;  // the last paragraph of the output
  // The process of a rank of the launcher `child` once its run has reached its first step; -1 if it ended before.
  [[nodiscard]] pid_t rank_process(pid_t child, int rank) const;
  void wait_for_step(pid_t child, const std::string& run) const;

  [[nodiscard]] snapshot::Content saved(const std::string& run) const;  // the newest snapshot
  [[nodiscard]] Json summary(const std::string& run) const;
  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }

 private:
  std::string recipe_;
  std::filesystem::path program_;
  std::filesystem::path folder_;
  std::vector<std::string> words_;
};

// The largest absolute difference between two states' weights.
[[nodiscard]] double difference(const snapshot::Content& a, const snapshot::Content& b);
[[nodiscard]] std::vector<pid_t> processes_with(const std::string& text);  // all whose command line contains it

}  // namespace millrace::test
