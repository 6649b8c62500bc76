// Saves a run's snapshots during training. The loop waits only while the state is copied; a separate thread writes the copy.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/fs.h"
#include "millrace/snapshot/keeper.h"
#include "millrace/snapshot/snapshot.h"

namespace millrace::snapshot {

// Runs one save at a time. All calls must come from one thread, which owns the tensors; `fs` must outlive the writer.
class Writer {
 public:
  // The result of a save.
  struct Saved {
    std::int64_t step = 0;
    std::filesystem::path path;
    std::optional<SnapshotError> error;  // nullopt: the snapshot is durable, and old snapshots were removed
    std::vector<std::string> warnings;   // warnings from the removal of old snapshots
    double blocked_ms = 0;               // time that the caller of begin() waited
    double write_ms = 0;                 // time from the end of the copy until the snapshot is durable
  };

  // With `in_background` the writer has a thread, and host memory for a copy of the state. Otherwise begin() writes the state
  // itself, without a copy. `began_from`: see Keeper.
  Writer(Fs& fs, std::filesystem::path run, bool in_background, const std::filesystem::path& began_from = {});
  ~Writer();  // waits for the running save
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Makes the writer's thread allocate the memory for a copy of `content` now, because page-locking some GB takes about a
  // second. Does nothing if the state is in host memory. If the allocation fails, the first save reports it.
  void make_room(const Content& content);
  // Waits for the running save and starts the next. When this returns, the tensors may change. Errors of the disk or the state
  // are not thrown: take() returns them. A result that was not taken before is lost.
  void begin(const Content& content, Keeper::Retention retention);
  void wait();                  // returns when no save is running
  [[nodiscard]] bool busy();    // true while a save is running
  std::optional<Saved> take();  // returns the result of the save that ended since the last call; never waits

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::snapshot
