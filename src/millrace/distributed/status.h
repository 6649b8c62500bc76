// The present activity of a rank, for the program that started the rank. The activity is kept in memory that both processes
// share, so that the program can still read it when the rank is gone or hangs.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "millrace/distributed/rendezvous.h"

namespace millrace::distributed {

// The environment variable that holds the number of the inherited descriptor.
inline constexpr const char* kStatusVariable = "MILLRACE_STATUS_FD";

// The launcher's side: a page of shared memory for each rank on its machine. Throws DistributedError if the system grants no
// memory.
class StatusPages {
 public:
  struct Status {
    std::string doing;       // "step 12, backward of generator"; see base/doing.h
    std::uint64_t beat = 0;  // changes when the rank makes progress
    bool is_done = false;    // true: the rank has finished its work and may leave
    std::string run_folder;  // the folder of the run; set by rank 0
  };

  explicit StatusPages(int ranks);
  ~StatusPages();
  StatusPages(const StatusPages&) = delete;
  StatusPages& operator=(const StatusPages&) = delete;
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }  // the descriptor stays open after exec
  [[nodiscard]] Status read(int local_rank) const;
  void clear();  // call it before the ranks are restarted

 private:
  int ranks_;
  int descriptor_ = -1;
  void* memory_ = nullptr;
};

// The rank's side: while this object exists, a thread writes the present activity of the training loop twenty times a second.
class StatusWriter {
 public:
  // No call has an effect if `environment` lacks kStatusVariable, or if the descriptor that it names is not a launcher's.
  StatusWriter(const Environment& environment, int local_rank);
  ~StatusWriter();
  StatusWriter(const StatusWriter&) = delete;
  StatusWriter& operator=(const StatusWriter&) = delete;
  void run_folder(const std::string& path);
  void done();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;  // null: the rank has no page
};

}  // namespace millrace::distributed
