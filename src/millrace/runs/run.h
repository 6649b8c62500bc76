// A run as its folder shows it, whether it is training, stopped, failed or finished. Every command about runs reads their files
// here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/json.h"

namespace millrace::runs {

// If other programs had a run's cores for this share of its time, its figures are unreliable.
inline constexpr double kBusy = 0.1;

// Reads a file when it is first requested, and once. A file that is missing, damaged or not Millrace's reads as null or empty, so
// that it does not hide other runs. Used by one thread.
class Run {
 public:
  // The last lines of these kinds in a log; null if the log's end has no line of that kind.
  struct LastLines {
    Json step, findings;
  };

  explicit Run(std::filesystem::path folder) : folder_(std::move(folder)) {}

  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }
  [[nodiscard]] const Json& config() const { return read(config_, "config.json"); }
  [[nodiscard]] const Json& plan() const { return read(plan_, "plan.json"); }
  // The summary of the last process that ended, which need not be the last that started.
  [[nodiscard]] const Json& summary() const { return read(summary_, "summary.json"); }
  [[nodiscard]] const LastLines& last_lines() const;  // takes constant time for a log of any length
  // The lines of log.jsonl, by process; of one that crashed before its first step a line in lock.
  [[nodiscard]] const std::vector<std::vector<Json>>& processes() const;
  [[nodiscard]] std::string recipe() const;  // "" if no file names it
  // The step of the newest snapshot that is complete and Millrace's; nullopt without such a snapshot. SnapshotError if the folder
  // of snapshots can't be read.
  [[nodiscard]] std::optional<std::int64_t> newest_snapshot() const;
  [[nodiscard]] std::string data() const;     // the fingerprint in the newest snapshot; "" if there is none
  [[nodiscard]] bool is_running() const;      // a process is training in it
  [[nodiscard]] bool is_there() const;        // the folder holds a run
  [[nodiscard]] std::string written() const;  // time of the last write to any of its files, local time; "" without files
  // Branches that the run left when it resumed from an older snapshot: run folders inside it, by name.
  [[nodiscard]] std::vector<std::filesystem::path> branches() const;

 private:
  const Json& read(std::optional<Json>& kept, const char* name) const;

  std::filesystem::path folder_;
  mutable std::optional<Json> config_, plan_, summary_;
  mutable std::optional<LastLines> last_lines_;
  mutable std::optional<std::vector<std::vector<Json>>> processes_;
};

// Folders in this run's parent that have a summary, newest first, at most 64. Empty if the parent can't be read.
[[nodiscard]] std::vector<std::filesystem::path> runs_beside(const std::filesystem::path& run);

}  // namespace millrace::runs
