// Which stream wrote and read which memory of a device last: an access that nothing orders after those before it is a mistake,
// whatever the kernels happened to compute.
#pragma once

#include <cstddef>
#include <string>

#include "streams.h"

namespace millrace::standin {

struct Access {
  const std::byte* begin = nullptr;  // addresses as kernels have them
  const std::byte* end = nullptr;
  bool written = false;
  std::size_t line = 0;  // the stream, as an index of a Clock
};

// What is wrong with it, in words; empty where it is in order.
[[nodiscard]] std::string find_race(const Access& access, const Clock& clock, const std::string& name);

// A block was given to work of `line`, and given back. What was freed on one stream and given to another one was not the same
// memory on a GPU, whose allocator keeps the two apart; on the same stream it was.
void block_begins(const std::byte* begin, const std::byte* end, std::size_t line);
// The allocator waits for `line` before it gives this block away again (record_stream).
void keep_for(const std::byte* address, std::size_t line);
void block_ends(const std::byte* begin);

[[nodiscard]] std::string name_of_stream(std::size_t line);

}  // namespace millrace::standin
