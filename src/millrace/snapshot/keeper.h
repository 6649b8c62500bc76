// Which of a run's snapshots stay. The one owner of the question whether a snapshot may be removed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "millrace/base/fs.h"

namespace millrace::snapshot {

// Which snapshots are worth keeping.
struct Retention {
  std::int64_t keep_last = 1;            // of the newest; at least 1
  std::int64_t keep_every = 0;           // also each whose step is a multiple of it; 0 = none
  std::vector<std::int64_t> keep_steps;  // also these: the best
};

// Removes only what Millrace made and what is whole: a snapshot that does not load counts for nothing, stays where it is and is
// named once, and so is a folder that is not ours or that somebody put something into. Snapshots that this process has neither
// read nor written are read once before they count or go. One thread at a time.
class Keeper {
 public:
  using Tell = std::function<void(const std::string&)>;
  // `began_from`: the snapshot that the process went on from ("" = none); it is whole and always stays. Later
  // ones are not named again: who looked for it has named those that do not load.
  Keeper(Fs& fs, const std::filesystem::path& run, const std::filesystem::path& began_from = {});

  // This process wrote it: it is whole, and stays until the next one is written.
  void wrote(const std::filesystem::path& snapshot);
  // Removes what `retention` does not keep. Also beside a save of another thread. A snapshot that a crash cuts off while it is
  // removed is never seen half. Never throws; what can't be removed is handed to `warn`.
  void retain(const Retention& retention, const Tell& warn);
  // Removes what saves and removals of these processes left when they were killed. A replaced snapshot whose successor never came
  // goes back to its place. No other process may be at work in the run. Never throws.
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
  std::set<std::string> told_;  // named by others before
};

}  // namespace millrace::snapshot
