// A run as its folder shows it, whether it is training, stopped, failed or finished. Every command that reads finished runs uses
// this class.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/json.h"

namespace millrace::runs {

// If other programs used the cores for this share of a run's time, its speed is not reliable.
inline constexpr double kBusy = 0.1;

// Each file is read once, when it is first needed. A file that is missing, damaged or not Millrace's counts as null or empty, so
// that it does not hide the run or other runs. Used by one thread.
class Run {
 public:
  // What the lines near the end of a log show.
  struct LastLines {
    Json step, findings;  // the last line of kind "step" and of kind "findings"; null if there is no such line
    bool has_end = true;  // false: the process that wrote last has not written why it ended
  };

  explicit Run(std::filesystem::path folder) : folder_(std::move(folder)) {}

  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }
  [[nodiscard]] const Json& config() const { return read(config_, "config.json"); }
  [[nodiscard]] const Json& plan() const { return read(plan_, "plan.json"); }
  // The summary of the process that ended last. A later process may have started since.
  [[nodiscard]] const Json& summary() const { return read(summary_, "summary.json"); }
  [[nodiscard]] const LastLines& last_lines() const;  // reads only the end of the log
  // The lines of log.jsonl, by process. If a process crashed before its first step, the line about the crash is in the file
  // `lock`; such lines come last.
  [[nodiscard]] const std::vector<std::vector<Json>>& processes() const;
  [[nodiscard]] std::string recipe() const;  // "" if no file names it
  // True: a run of a training script that is not Millrace's; recipe() is the script's file name.
  [[nodiscard]] bool is_script() const;
  // The step of the newest snapshot that is complete and Millrace's; nullopt if there is no such snapshot. Throws SnapshotError
  // if the folder of snapshots can't be read.
  [[nodiscard]] std::optional<std::int64_t> newest_snapshot() const;
  [[nodiscard]] std::string data() const;     // the data's fingerprint in the newest snapshot that has one; "" if there is no
                                              // such snapshot
  [[nodiscard]] bool is_running() const;      // true: a process is training in the folder
  [[nodiscard]] bool is_there() const;        // true: the folder holds a run
  [[nodiscard]] std::string written() const;  // the local time at which a file of the run was last written; "" if the run has no
                                              // files
  // The branches that the run left when it resumed from an older snapshot, sorted by name. Each is a run folder inside the
  // run's own folder.
  [[nodiscard]] std::vector<std::filesystem::path> branches() const;

 private:
  const Json& read(std::optional<Json>& kept, const char* name) const;

  std::filesystem::path folder_;
  mutable std::optional<Json> record_, config_, plan_, summary_;
  mutable std::optional<LastLines> last_lines_;
  mutable std::optional<std::vector<std::vector<Json>>> processes_;
};

// True if `summary` may be of the process that wrote `line`, the log's last line of kind step or end (null: no such line). False
// if the summary is of an earlier process: the run was resumed and has logged steps since, or the disk was full when the last
// process ended.
[[nodiscard]] bool is_summary_of(const Json& summary, const Json& line);

// The folders next to this run's folder that have a summary: at most 64, the newest first. Empty if the parent folder can't be
// read.
[[nodiscard]] std::vector<std::filesystem::path> runs_beside(const std::filesystem::path& run);

}  // namespace millrace::runs
