// Saves a run's snapshots during training: the loop waits only for the copy of the state; a separate thread writes it.
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

// One save at a time. All calls come from one thread, which owns the tensors; `fs` must outlive the writer.
class Writer {
 public:
  // The result of a save.
  struct Saved {
    std::int64_t step = 0;
    std::filesystem::path path;
    std::optional<SnapshotError> error;  // nullopt: it is durable, and snapshots not to be kept were removed
    std::vector<std::string> warnings;   // warnings of the removal
    double blocked_ms = 0;               // time that the caller of begin() waited
    double write_ms = 0;                 // from the end of the copy until the snapshot is durable
  };

  // in_background: keeps a thread, and host memory for a copy of the state. Otherwise begin() writes, without a copy.
  // `began_from`: see Keeper.
  Writer(Fs& fs, std::filesystem::path run, bool in_background, const std::filesystem::path& began_from = {});
  ~Writer();  // waits for the save under way
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Makes the writer's thread allocate the memory for a copy of `content` now, since pinning some GB takes about a second. Does
  // nothing if the state is in host memory. A failure is reported by the first save.
  void make_room(const Content& content);
  // Starts a save, after waiting for the save under way. When this returns, the tensors may change. Never throws because of the
  // disk or the state: take() returns such errors. A result that was not taken is lost.
  void begin(const Content& content, Keeper::Retention retention);
  void wait();                  // until no save is under way
  [[nodiscard]] bool busy();    // a save is under way
  std::optional<Saved> take();  // the result of the save that ended since the last call; never waits

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::snapshot
