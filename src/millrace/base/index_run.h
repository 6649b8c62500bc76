// Consecutive indices, such as those of elements in a stream of random numbers.
#pragma once

#include <cstdint>

namespace millrace {

// first, first + 1, ..., first + count - 1.
struct IndexRun {
  std::int64_t first = 0, count = 0;
  friend bool operator==(const IndexRun&, const IndexRun&) = default;
};

}  // namespace millrace
