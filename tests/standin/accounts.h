// The account of a process's use of the stand-in device: counts per step, written as JSON at the end to the file STANDIN_ACCOUNT.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace millrace::standin {

enum class Count : std::size_t {
  launches,      // operations that launch one or more kernels on a GPU
  recorded,      // the same in a recording, which does not execute them
  replays,       // of recordings: one launch each, but what they copy is counted too
  event_waits,   // the host waits for an event
  stream_waits,  // the host waits for a stream
  device_waits,  // the host waits for the whole device
  read_backs,    // a value is read by the host, which waits for it: item(), nonzero(), a blocking copy to the host
  to_device,     // copies
  to_host,
  pageable_copies,  // in either direction: memory that is not page-locked
  blocking_copies,  // in either direction: the host waits for the stream
  late_copies,      // completed after the call that asked for them
  draws,            // operations that draw from the generator
  allocations,
  kEnd
};

// Adds one to `what`; `name` is the operation.
void count(Count what, const std::string& name);
void count_bytes(bool to_device, std::size_t bytes);
// Ends a step: called by the optimiser's fused operation, or by a test.
void mark_step();

// While on, any operation that a CUDA graph can't record throws an error with its name.
void capture(bool on);

[[nodiscard]] std::uint64_t counted(Count what);
void reset_accounts();
[[nodiscard]] std::string accounts_as_json();

}  // namespace millrace::standin
