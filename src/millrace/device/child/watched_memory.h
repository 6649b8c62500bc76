// Memory with watched borders: writes outside a tensor, or outside memory that oneDNN asked for, are detected even if nothing
// crashes.
#pragma once

#include <cstddef>
#include <string>

namespace millrace::device {

// Until destruction, memory that LibTorch allocates on the CPU for its tensors and for oneDNN's scratch is filled with `junk`,
// and so are the `zone_bytes` on either side. Costs a pass over that memory. One at a time.
class WatchedMemory {
 public:
  WatchedMemory(unsigned char junk, std::size_t zone_bytes);
  ~WatchedMemory();  // blocks that live on are no longer watched
  WatchedMemory(const WatchedMemory&) = delete;
  WatchedMemory& operator=(const WatchedMemory&) = delete;

  // "wrote 64 bytes beyond its memory": outside a present or former block; "" if nothing was. Bytes equal to the junk's are not
  // detected. Does not wait: no operation may be under way.
  [[nodiscard]] std::string overrun() const;
};

}  // namespace millrace::device
