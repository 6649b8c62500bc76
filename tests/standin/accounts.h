// What a process did to the stand-in device: counted, by step, and written as JSON at the end where STANDIN_ACCOUNT names a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace millrace::standin {

enum class Count : std::size_t {
  launches,      // operations that a GPU would get a kernel or more for
  event_waits,   // the host waits for an event
  stream_waits,  // the host waits for a stream
  device_waits,  // the host waits for the whole device
  read_backs,    // a value is read to the host, which waits for it: item(), nonzero(), a blocking copy to the host
  to_device,     // copies
  to_host,
  pageable_copies,  // of either way: memory that is not page-locked
  blocking_copies,  // of either way: the host waits for the stream
  late_copies,      // landed after the call that asked for them
  draws,            // operations that take numbers of the generator
  allocations,
  kEnd
};

// One more of `what`; `name` says by which operation.
void count(Count what, const std::string& name);
void count_bytes(bool to_device, std::size_t bytes);
// A step ends here: by the optimiser's fused operation, or as a test says.
void mark_step();

// From here on, or no longer: whatever a CUDA graph can't record throws, with its name.
void capture(bool on);

[[nodiscard]] std::uint64_t counted(Count what);
void reset_accounts();
[[nodiscard]] std::string accounts_as_json();

}  // namespace millrace::standin
