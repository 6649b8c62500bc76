// Counters that any thread may increment while the loop runs.
#pragma once

#include <cstdint>
#include <string_view>

namespace millrace::telemetry {

// A named counter that any thread may increment. Each thread has a cache line for its share, and reading adds up the shares.
// Register a counter once and keep it for the process.
class Counter {
 public:
  explicit Counter(std::string_view name);  // the same name gives the same counter
  void add(std::int64_t value) const noexcept;
  [[nodiscard]] std::int64_t total() const;

 private:
  std::uint32_t index_;
};

}  // namespace millrace::telemetry
