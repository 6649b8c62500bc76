// Saves a run's snapshots beside the training: the loop waits for the copy of the state only, a thread of its own writes it.
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

// What became of a save.
struct Saved {
  std::int64_t step = 0;
  std::filesystem::path path;
  std::optional<SnapshotError> error;  // none: it is durable, and what is not to be kept was removed
  std::vector<std::string> warnings;   // of the removal
  double blocked_ms = 0;               // the caller of begin() waited
  double write_ms = 0;                 // from the copy to durable
};

// One save at a time. All calls are of one thread, the one that owns the tensors; `fs` outlives the writer.
class Writer {
 public:
  // in_background: keeps a thread, and host memory for a copy of the state. Else begin() writes, without a copy.
  // `began_from`: see Keeper.
  Writer(Fs& fs, std::filesystem::path run, bool in_background, const std::filesystem::path& began_from = {});
  ~Writer();  // waits for the save under way
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Makes room for the copy of such a state before the first save, in the thread: locking memory for a device takes a second for
  // some GB. Nothing where the state is in host memory. A failure is the first save's to tell.
  void make_room(const Content& content);
  // Starts a save; waits first while one is under way. When this returns, the tensors may change. Never throws for what the disk
  // or the state is to blame for: take() tells. A result that nobody took is lost.
  void begin(const Content& content, Retention retention);
  void wait();                  // until no save is under way
  [[nodiscard]] bool busy();    // a save is under way
  std::optional<Saved> take();  // the result of the save that ended since the last call; never waits

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::snapshot
