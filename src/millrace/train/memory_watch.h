// Says once when memory comes near to its end, and once when what tensors hold rises from one log line to the next without end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace {

// At a log line, between two steps, where a step's own tensors are gone.
struct MemoryReading {
  std::int64_t step = 0;
  bool first_epoch = true;    // caches of data and features still fill
  std::uint64_t used = 0;     // of `room`
  std::uint64_t room = 0;     // that the process, or the GPU's allocator, may have in all; 0 = not known
  std::uint64_t tensors = 0;  // bytes of tensors alive
  bool on_gpu = false;
};

// Belongs to the loop's thread.
class MemoryWatch {
 public:
  static constexpr double kShare = 0.9;
  static constexpr int kRises = 8;                         // in a row; a reading that does not rise begins anew
  static constexpr double kRiseShare = 0.05;               // of what there was before them, in all
  static constexpr std::uint64_t kRiseBytes = 16'000'000;  // and at least these

  [[nodiscard]] std::vector<std::string> look(const MemoryReading& now);        // warnings, mostly none
  [[nodiscard]] const std::string& rising() const noexcept { return rising_; }  // what was said of a rise; "" = nothing

 private:
  bool told_share_ = false;
  std::string rising_;
  int rises_ = 0;
  MemoryReading begin_, last_;  // of the rises under way
  bool has_last_ = false;
};

}  // namespace millrace
