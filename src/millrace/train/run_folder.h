// The folder of a run: its name, its lock, whether it holds a run already, and what may change when it is resumed.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "millrace/base/fs.h"
#include "millrace/base/json.h"
#include "millrace/config/schema.h"
#include "millrace/train/config.h"

namespace millrace {

// runs/<recipe>/<run.name, else date-time> below the current folder, or run.dir. A date-time that is taken gets "-2", "-3" …
[[nodiscard]] std::filesystem::path choose_run_folder(const std::string& recipe, const RunNames& names);

// Holds <run>/lock for the life of the process. Throws UsageError when another process has it.
class RunLock {
 public:
  explicit RunLock(const std::filesystem::path& run_folder);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int descriptor_ = -1;
};

// Removes what a run wrote (snapshots, logs, event files, summary), nothing else; for --fresh.
void clear_run_folder(Fs& fs, const std::filesystem::path& run_folder);

// Keys whose value may differ on resume: they change how long or how loudly a run goes on, never its bits. `recipe_keys` are the
// recipe's own ones; one that ends with a dot stands for a whole section.
[[nodiscard]] bool may_change_on_resume(const std::string& path, std::span<const std::string> recipe_keys);

// Differences between the config a snapshot was made with and the present one that are not allowed, as problems.
[[nodiscard]] std::vector<Problem> forbidden_changes(const Json& saved, const config::Resolved& now,
                                                     std::span<const std::string> recipe_keys = {});

// config.json: the resolved values, and the origin of each.
void write_config(Fs& fs, const std::filesystem::path& run_folder, const config::Resolved& config);
[[nodiscard]] config::Resolved read_config(Fs& fs, const std::filesystem::path& run_folder);  // SnapshotError when unreadable

}  // namespace millrace
