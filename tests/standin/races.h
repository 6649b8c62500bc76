// The last stream that wrote and read each piece of a device's memory: an access that no event orders after the earlier ones is a
// mistake, whatever the kernels happened to compute.
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

// Describes the race; empty if the access is in order.
[[nodiscard]] std::string find_race(const Access& access, const Clock& clock, const std::string& name);

// A block was given to work of `line`, and given back. A block that is freed on one stream and reused on another would be
// different memory on a GPU, whose allocator keeps the two apart; on the same stream it would be the same.
void block_begins(const std::byte* begin, const std::byte* end, std::size_t line);
// Makes the allocator wait for `line` before it reuses this block (record_stream).
void keep_for(const std::byte* address, std::size_t line);
void block_ends(const std::byte* begin);

[[nodiscard]] std::string name_of_stream(std::size_t line);

}  // namespace millrace::standin
