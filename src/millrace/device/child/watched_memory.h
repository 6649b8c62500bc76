// Memory with watched borders, which detects writes outside a tensor, or outside memory that oneDNN requested, even if the
// program does not crash.
#pragma once

#include <cstddef>
#include <string>

namespace millrace::device {

// While this object exists, memory that LibTorch allocates on the CPU for tensors and for oneDNN's scratch is filled with
// `junk`, and so are `zone_bytes` before and after it. Costs a pass over that memory. Only one object may exist at a time.
class WatchedMemory {
 public:
  WatchedMemory(unsigned char junk, std::size_t zone_bytes);
  ~WatchedMemory();  // blocks that outlive this object are no longer watched
  WatchedMemory(const WatchedMemory&) = delete;
  WatchedMemory& operator=(const WatchedMemory&) = delete;

  // Describes a write outside a present or former block: "wrote 64 bytes beyond its memory"; "" if there was no such write.
  // Bytes that equal the junk are not detected. Call it while no operation is running, because it does not wait for operations.
  [[nodiscard]] std::string overrun() const;
};

}  // namespace millrace::device
