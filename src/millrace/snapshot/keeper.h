// Decides which of a run's snapshots stay. Apart from a save, which replaces a snapshot of the same step, no other code removes
// a snapshot.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "millrace/base/fs.h"

namespace millrace::snapshot {

// Removes only whole snapshots that Millrace made. A snapshot that can't be loaded is not counted, stays where it is and is
// reported once. The same holds for a folder that is foreign or that others have changed. A snapshot that this process has
// neither read nor written is read once before it is counted or removed. Used by one thread at a time.
class Keeper {
 public:
  // Which snapshots to keep.
  struct Retention {
    std::int64_t keep_last = 1;            // number of newest snapshots to keep; at least 1
    std::int64_t keep_every = 0;           // also keep snapshots whose step is a multiple of this; 0 = keep no such snapshots
    std::vector<std::int64_t> keep_steps;  // also keep the snapshots of these steps, such as the best
  };

  using Tell = std::function<void(const std::string&)>;
  // `began_from` is the snapshot from which the process resumed ("" = the process did not resume). That snapshot is whole and
  // always stays. Damaged snapshots later than `began_from` are not reported again, because the search for `began_from` has
  // reported them.
  Keeper(Fs& fs, const std::filesystem::path& run, const std::filesystem::path& began_from = {});

  // Call this after the process wrote `snapshot`. The snapshot is whole, and stays until the next one is written.
  void wrote(const std::filesystem::path& snapshot);
  // Removes the snapshots that `retention` does not keep. May run during a save of another thread. An interrupted removal leaves
  // no partial snapshot visible. Never throws; failures are passed to `warn`.
  void retain(const Retention& retention, const Tell& warn);
  // Removes files that these processes, which were killed, left behind when they saved or removed snapshots. If the new snapshot
  // of a replacement is missing, the old snapshot returns to its place. No other process may be working in the run. Never
  // throws.
  void clear_leftovers(const std::set<long>& processes, const Tell& warn);

 private:
  [[nodiscard]] bool is_whole(const std::string& name, std::int64_t step, const Tell& warn);
  void name_once(const std::string& name, const std::string& reason, const Tell& warn);
  void clear(const std::set<long>& processes, const Tell& warn);
  [[nodiscard]] std::vector<std::string> not_kept(const Retention& retention, const Tell& warn);

  Fs& fs_;
  std::filesystem::path snapshots_;
  std::string began_from_;  // name in the snapshots folder; "" = the process did not resume
  std::string last_written_;
  std::set<std::string> whole_;
  std::set<std::string> named_;
  std::set<std::string> reported_;  // snapshots later than began_from_; the search for it has reported the damaged ones
};

}  // namespace millrace::snapshot
