// Memory whose borders are watched: who writes outside a tensor, or outside what oneDNN asked for, is seen also where nothing
// crashes.
#pragma once

#include <cstddef>
#include <string>

namespace millrace::device {

// From here until it is destroyed, what LibTorch allocates on the CPU for its tensors and for oneDNN's scratch memory is full of
// `junk`, and so are the `zone_bytes` on either side. Costs a pass over that memory. One at a time.
class WatchedMemory {
 public:
  WatchedMemory(unsigned char junk, std::size_t zone_bytes);
  ~WatchedMemory();  // what lives on is watched no longer
  WatchedMemory(const WatchedMemory&) = delete;
  WatchedMemory& operator=(const WatchedMemory&) = delete;

  // "wrote 64 bytes beyond its memory": outside a block that is there or was; "" = nobody did. Bytes that are those of the junk
  // stay unseen. Waits for nobody: no operation may be under way.
  [[nodiscard]] std::string overrun() const;
};

}  // namespace millrace::device
