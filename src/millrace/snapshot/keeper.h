// Decides which of a run's snapshots stay; no other code removes a snapshot.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "millrace/base/fs.h"

namespace millrace::snapshot {

// Removes only whole snapshots that Millrace made. A snapshot that does not load does not count, stays where it is and is
// reported once; the same holds for a folder that is foreign or was changed by others. Snapshots that this process has neither
// read nor written are read once before they are counted or removed. One thread at a time.
class Keeper {
 public:
  // Which snapshots are worth keeping.
  struct Retention {
    std::int64_t keep_last = 1;            // number of newest snapshots to keep; at least 1
    std::int64_t keep_every = 0;           // also keep each whose step is a multiple of this; 0 = none of these
    std::vector<std::int64_t> keep_steps;  // also keep these: the best
  };

  using Tell = std::function<void(const std::string&)>;
  // `began_from`: the snapshot from which the process resumed ("" = none); it is whole and always stays. Later snapshots are not
  // reported again: the search for `began_from` has reported those that do not load.
  Keeper(Fs& fs, const std::filesystem::path& run, const std::filesystem::path& began_from = {});

  // Call after this process wrote `snapshot`, which is whole then and stays until the next one is written.
  void wrote(const std::filesystem::path& snapshot);
  // Removes the snapshots that `retention` does not keep. May run during a save of another thread. An interrupted removal leaves
  // no partial snapshot visible. Never throws; failures are passed to `warn`.
  void retain(const Retention& retention, const Tell& warn);
  // Removes the leftovers of saves and removals of these killed processes. A replaced snapshot whose successor never appeared is
  // restored to its place. No other process may be working in the run. Never throws.
  void clear_leftovers(const std::set<long>& processes, const Tell& warn);

 private:
  [[nodiscard]] bool is_whole(const std::string& name, std::int64_t step, const Tell& warn);
  void name_once(const std::string& name, const std::string& reason, const Tell& warn);
  void clear(const std::set<long>& processes, const Tell& warn);
  [[nodiscard]] std::vector<std::string> not_kept(const Retention& retention, const Tell& warn);

  Fs& fs_;
  std::filesystem::path snapshots_;
  std::string began_from_;  // names in the snapshots folder
  std::string last_written_;
  std::set<std::string> whole_;
  std::set<std::string> named_;
  std::set<std::string> reported_;  // snapshots later than began_from_, which other code has reported
};

}  // namespace millrace::snapshot
