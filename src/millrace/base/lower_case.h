// Runs of code points whose simple lower case lies at the same distance.
#pragma once

#include <cstdint>
#include <span>

namespace millrace::detail {

// first, first + stride, ..., last; lower case = code point + distance.
struct LowerCaseRun {
  std::uint32_t first;
  std::uint32_t last;
  std::int32_t distance;
  std::uint32_t stride;
};

// Sorted by code point, not overlapping.
[[nodiscard]] std::span<const LowerCaseRun> lower_case_runs() noexcept;

}  // namespace millrace::detail
