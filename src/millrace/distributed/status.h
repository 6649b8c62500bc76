// What a rank is doing, for the program that started it: through memory that both hold, so that it can still be read when the
// rank is gone or frozen.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "millrace/distributed/rendezvous.h"

namespace millrace::distributed {

// Name of the variable with the descriptor that ranks inherit.
inline constexpr const char* kStatusVariable = "MILLRACE_STATUS_FD";

struct Status {
  std::string doing;       // "step 12, backward of generator"; see base/doing.h
  std::uint64_t beat = 0;  // changes while the rank moves
  bool is_done = false;    // it came to the end of its work: leaving now is right
  std::string run_folder;  // of rank 0
};

// The launcher's side: one page for each rank of its machine. DistributedError when the system gives no memory.
class StatusPages {
 public:
  explicit StatusPages(int ranks);
  ~StatusPages();
  StatusPages(const StatusPages&) = delete;
  StatusPages& operator=(const StatusPages&) = delete;
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }  // not closed by exec
  [[nodiscard]] Status read(int local_rank) const;
  void clear();  // before the ranks are started anew

 private:
  int ranks_;
  int descriptor_ = -1;
  void* memory_ = nullptr;
};

// The rank's side: a thread writes what the loop is doing, twenty times a second, until destruction.
class StatusWriter {
 public:
  // Without the variable, or where the descriptor is not a launcher's, all calls do nothing.
  StatusWriter(const Environment& environment, int local_rank);
  ~StatusWriter();
  StatusWriter(const StatusWriter&) = delete;
  StatusWriter& operator=(const StatusWriter&) = delete;
  void run_folder(const std::string& path);
  void done();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;  // null: there is no page
};

}  // namespace millrace::distributed
