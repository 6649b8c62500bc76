// A run as its folder tells of it, whether it trains, was stopped, failed or is finished. Every command that looks at runs reads
// their files here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/json.h"

namespace millrace::runs {

// Share of its time in which other programs had a run's cores, from which on its figures tell little.
inline constexpr double kBusy = 0.1;

// The last lines of these kinds in a log; null where there is none near its end.
struct LastLines {
  Json step, findings;
};

// Reads a file when it is first asked for, and once. A file that is missing, damaged or a stranger's reads as null or empty: it
// must not hide the other runs. Belongs to one thread.
class Run {
 public:
  explicit Run(std::filesystem::path folder) : folder_(std::move(folder)) {}

  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }
  [[nodiscard]] const Json& config() const { return read(config_, "config.json"); }
  [[nodiscard]] const Json& plan() const { return read(plan_, "plan.json"); }
  // Of the last process that ended, which need not be the last that began.
  [[nodiscard]] const Json& summary() const { return read(summary_, "summary.json"); }
  [[nodiscard]] const LastLines& last_lines() const;                      // takes the same time for a log of any length
  [[nodiscard]] const std::vector<std::vector<Json>>& processes() const;  // the lines of log.jsonl, by process
  [[nodiscard]] std::string recipe() const;                               // "" when no file tells
  // The step of the newest snapshot that is whole and of this program; nullopt when there is none. SnapshotError when the folder
  // of snapshots can't be looked into.
  [[nodiscard]] std::optional<std::int64_t> newest_snapshot() const;
  [[nodiscard]] std::string data() const;     // the fingerprint in the newest snapshot; "" when there is none
  [[nodiscard]] bool is_running() const;      // a process trains in it now
  [[nodiscard]] bool is_there() const;        // the folder holds a run
  [[nodiscard]] std::string written() const;  // when a file of it was last written, local time; "" when none is there
  // Runs that it left behind when it went on from an older snapshot: run folders below it, by name.
  [[nodiscard]] std::vector<std::filesystem::path> branches() const;

 private:
  const Json& read(std::optional<Json>& kept, const char* name) const;

  std::filesystem::path folder_;
  mutable std::optional<Json> config_, plan_, summary_;
  mutable std::optional<LastLines> last_lines_;
  mutable std::optional<std::vector<std::vector<Json>>> processes_;
};

// Folders beside this run that have a summary, the newest first, at most 64. Empty when the parent can't be looked into.
[[nodiscard]] std::vector<std::filesystem::path> runs_beside(const std::filesystem::path& run);

}  // namespace millrace::runs
