// Says once when memory comes near to its end, and once when what tensors hold rises from one log line to the next without end.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace millrace {

// At a log line, between two steps, where a step's own tensors are gone.
struct MemoryReading {
  std::int64_t step = 0;
  // Of this process's first pass over the data, in which caches of data and features fill: steps made, and steps until it is
  // over, or the run. `left` 0 = it is over.
  std::int64_t passed = 0, left = 0;
  std::uint64_t used = 0;     // of `room`
  std::uint64_t room = 0;     // that the process, or the GPU's allocator, may have in all; 0 = not known
  std::uint64_t tensors = 0;  // bytes of tensors alive
  bool on_gpu = false;
};

// Bytes of tensors whose owner is known, by name: "optimizer".
using OwnedMemory = std::map<std::string, std::uint64_t>;

// Belongs to the loop's thread.
class MemoryWatch {
 public:
  static constexpr double kShare = 0.9;
  static constexpr int kRises = 8;                         // in a row; a reading that does not rise begins anew
  static constexpr double kRiseShare = 0.05;               // of what there was before them, in all
  static constexpr std::uint64_t kRiseBytes = 16'000'000;  // and at least these
  // From where on the first pass is looked at: a part of it, or so many steps. As caches fill in it, a rise is told only where
  // at its pace what is free is gone before the pass is over.
  static constexpr double kPassPart = 0.1;
  static constexpr std::int64_t kPassSteps = 1000;

  // Warnings, mostly none. `owned` is asked when a rise begins and when it is told; null = nobody knows.
  [[nodiscard]] std::vector<std::string> look(const MemoryReading& now, const std::function<OwnedMemory()>& owned = nullptr);
  // The rise that goes on; "" = there is none. It is over when half of it is gone, or when kRises readings have not risen.
  [[nodiscard]] const std::string& rising() const noexcept { return rising_; }

 private:
  void begin(const MemoryReading& now);
  [[nodiscard]] bool has_risen(const MemoryReading& now) const;
  [[nodiscard]] bool is_over(const MemoryReading& now) const;

  bool told_share_ = false, told_rise_ = false;
  std::string rising_;
  int rises_ = 0, still_ = 0;   // readings in a row; of a rise that was told
  std::uint64_t most_ = 0;      // bytes of tensors since begin_
  MemoryReading begin_, last_;  // of the rises under way
  OwnedMemory owned_;           // at the first of them
  bool has_last_ = false;
};

}  // namespace millrace
