#include "millrace/device/heap.h"

#include <malloc.h>

namespace millrace::device {

std::uint64_t heap_bytes() noexcept {
  const auto info = ::mallinfo2();
  return info.arena + info.hblkhd;
}

}  // namespace millrace::device
