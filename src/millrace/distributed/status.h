// What a rank is doing, for the program that started it: in memory that both share, so that it can still be read when the rank is
// gone or frozen.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "millrace/distributed/rendezvous.h"

namespace millrace::distributed {

// Name of the variable with the descriptor that ranks inherit.
inline constexpr const char* kStatusVariable = "MILLRACE_STATUS_FD";

// The launcher's side: a page for each rank of its machine. DistributedError if the system grants no memory.
class StatusPages {
 public:
  struct Status {
    std::string doing;       // "step 12, backward of generator"; see base/doing.h
    std::uint64_t beat = 0;  // changes while the rank makes progress
    bool is_done = false;    // it has finished its work: it may leave now
    std::string run_folder;  // set by rank 0
  };

  explicit StatusPages(int ranks);
  ~StatusPages();
  StatusPages(const StatusPages&) = delete;
  StatusPages& operator=(const StatusPages&) = delete;
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }  // survives exec
  [[nodiscard]] Status read(int local_rank) const;
  void clear();  // call it before the ranks are restarted

 private:
  int ranks_;
  int descriptor_ = -1;
  void* memory_ = nullptr;
};

// The rank's side: until destruction a thread writes twenty times a second what the loop is doing.
class StatusWriter {
 public:
  // If the variable is missing or the descriptor is not a launcher's, all calls do nothing.
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
