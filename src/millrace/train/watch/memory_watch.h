// Warns when memory is nearly full, and when the memory of tensors keeps growing from one log line to the next; each warning is
// given once.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace millrace {

// Bytes of tensors by the name of the part that owns them, such as "optimizer".
using OwnedMemory = std::map<std::string, std::uint64_t>;

// Belongs to the loop's thread.
class MemoryWatch {
 public:
  // The memory at a log line, between two steps, when the tensors of a step no longer exist.
  struct Reading {
    std::int64_t step = 0;
    // Caches of data and features fill during a process's first pass over the data. `passed`: number of steps of that pass made
    // so far. `left`: number of steps until that pass or the run ends; 0 = the pass is over.
    std::int64_t passed = 0, left = 0;
    std::uint64_t used = 0;     // bytes in use, out of `room`
    std::uint64_t room = 0;     // bytes that the process, or the GPU's allocator, may have in all; 0 = not known
    std::uint64_t tensors = 0;  // bytes of all existing tensors
    bool on_gpu = false;
  };

  static constexpr double kShare = 0.9;
  static constexpr int kRises = 8;                         // a rise is reported after this number of readings in a row that are
                                                           // each higher than the one before; any other reading restarts the
                                                           // count
  static constexpr double kRiseShare = 0.05;               // a rise must be at least this share of the bytes before it
  static constexpr std::uint64_t kRiseBytes = 16'000'000;  // a rise must be at least this number of bytes
  // In a process's first pass over the data, readings are judged after the share kPassPart of the pass or after kPassSteps
  // steps, whichever comes first. Because caches fill in this pass, a rise is reported only if at its pace the free memory is
  // used up before the pass ends.
  static constexpr double kPassPart = 0.1;
  static constexpr std::int64_t kPassSteps = 1000;

  // Returns warnings; usually the list is empty. `owned` is called when a rise begins and when it is reported; null = the owners
  // of tensors are not known.
  [[nodiscard]] std::vector<std::string> look(const Reading& now, const std::function<OwnedMemory()>& owned = nullptr);
  // A text about the present rise; "" if there is none. A rise is over when half of the added bytes are gone, or after kRises
  // readings in a row that were not higher.
  [[nodiscard]] const std::string& rising() const noexcept { return rising_; }

 private:
  void begin(const Reading& now);
  [[nodiscard]] bool has_risen(const Reading& now) const;
  [[nodiscard]] bool is_over(const Reading& now) const;

  bool told_share_ = false, told_rise_ = false;
  std::string rising_;
  int rises_ = 0, still_ = 0;  // rises_: higher readings in a row; still_: readings in a row, during a reported rise, that were
                               // not higher
  std::uint64_t most_ = 0;     // the most bytes of tensors since begin_
  Reading begin_, last_;       // the first and the last reading of the present rise
  OwnedMemory owned_;          // bytes by owner when the rise began
  bool has_last_ = false;
};

}  // namespace millrace
