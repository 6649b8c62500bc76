// Finds files that slow a loader down because their reads take much longer than usual.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "millrace/data/loader/loader.h"

namespace millrace::data::detail {

// A caching source calls this in the reader's thread when a sample or part came from the cache. The time of such a read is not
// counted.
void note_kept_sample() noexcept;
// Returns true if note_kept_sample() was called in this thread since take_kept_sample() was last called.
[[nodiscard]] bool take_kept_sample() noexcept;

// All functions are thread-safe.
class SlowReads {
 public:
  static constexpr double kTimes = 5;                      // a slow read takes at least this many times the usual time of a row
  static constexpr std::int64_t kNanoseconds = 1'000'000;  // a slow read also takes at least this much longer than usual
  static constexpr std::int64_t kFirst = 8;                // rows that must be read before a usual time is known
  static constexpr std::size_t kMost = 256;                // the most files that are recorded
  static constexpr std::uint64_t kLooks = 8;               // one of this many quick reads is recorded, and counts for all

  // Records a read of `rows` rows from the source itself, not from a cache. `where` returns the place of the read, as
  // Source::describe() gives it; it is called for slow reads and, after the first slow read, for some quick reads.
  void note(std::int64_t nanoseconds, std::int64_t rows, const std::function<std::string()>& where) noexcept;
  [[nodiscard]] std::vector<Loader::SlowFile> files() const;  // sorted, the slowest file first

 private:
  void note_quick(const std::function<std::string()>& where) noexcept;

  std::atomic<std::int64_t> usual_ns_{0}, usual_rows_{0};
  std::atomic<std::uint64_t> quick_{0};  // number of quick reads since the first slow read
  std::atomic<bool> any_{false};         // true if there was a slow read
  mutable std::mutex mutex_;
  std::map<std::string, Loader::SlowFile> files_;
};

}  // namespace millrace::data::detail
