// Warns once when memory is nearly full, and once when the tensors' memory keeps growing from one log line to the next.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace millrace {

// Bytes of tensors whose owner is known, by name: "optimizer".
using OwnedMemory = std::map<std::string, std::uint64_t>;

// Belongs to the loop's thread.
class MemoryWatch {
 public:
  // Taken at a log line, between two steps, when a step's own tensors are gone.
  struct Reading {
    std::int64_t step = 0;
    // Steps made in this process's first pass over the data, in which caches of data and features fill, and steps left until the
    // pass, or the run, is over. `left` 0 = it is over.
    std::int64_t passed = 0, left = 0;
    std::uint64_t used = 0;     // part of `room`
    std::uint64_t room = 0;     // all that the process, or the GPU's allocator, may have; 0 = not known
    std::uint64_t tensors = 0;  // bytes of tensors alive
    bool on_gpu = false;
  };

  static constexpr double kShare = 0.9;
  static constexpr int kRises = 8;                         // rises in a row; a reading that does not rise resets the count
  static constexpr double kRiseShare = 0.05;               // least rise in all, relative to the bytes before the rises
  static constexpr std::uint64_t kRiseBytes = 16'000'000;  // least rise in bytes
  // The first pass is judged from this fraction on, or from a number of steps. Caches fill in it, so a rise is reported only if
  // at its pace the free memory is used up before the pass is over.
  static constexpr double kPassPart = 0.1;
  static constexpr std::int64_t kPassSteps = 1000;

  // Warnings, usually empty. `owned` is called when a rise begins and when it is reported; null = owners are not known.
  [[nodiscard]] std::vector<std::string> look(const Reading& now, const std::function<OwnedMemory()>& owned = nullptr);
  // A text about the rise under way; "" without a rise. A rise is over when half of it is gone, or when kRises readings have not
  // risen.
  [[nodiscard]] const std::string& rising() const noexcept { return rising_; }

 private:
  void begin(const Reading& now);
  [[nodiscard]] bool has_risen(const Reading& now) const;
  [[nodiscard]] bool is_over(const Reading& now) const;

  bool told_share_ = false, told_rise_ = false;
  std::string rising_;
  int rises_ = 0, still_ = 0;  // readings in a row that rose; readings that did not rise during a reported rise
  std::uint64_t most_ = 0;     // most bytes of tensors since begin_
  Reading begin_, last_;       // first and last of the rises under way
  OwnedMemory owned_;          // bytes by owner at begin_
  bool has_last_ = false;
};

}  // namespace millrace
