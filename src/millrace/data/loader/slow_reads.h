// Which files hold up a loader: reads that take many times what reads usually take.
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

// A source that keeps samples says so, in the reader's thread, when it gave one of them, or a part of one. Such a read tells
// nothing of what reading takes.
void note_kept_sample() noexcept;
// Whether it did in this thread since the last call.
[[nodiscard]] bool take_kept_sample() noexcept;

// Thread-safe.
class SlowReads {
 public:
  static constexpr double kTimes = 5;                      // the usual time of a row
  static constexpr std::int64_t kNanoseconds = 1'000'000;  // and so much longer
  static constexpr std::int64_t kFirst = 8;                // rows before anything is usual
  static constexpr std::size_t kMost = 256;                // files
  static constexpr std::uint64_t kLooks = 8;               // of so many quick reads one tells its file

  // A read of so many rows, none of which a cache gave; `where` is asked for the place of a slow one, as Source::describe() says
  // it.
  void note(std::int64_t nanoseconds, std::int64_t rows, const std::function<std::string()>& where) noexcept;
  [[nodiscard]] std::vector<SlowFile> files() const;  // the slowest first

 private:
  void note_quick(const std::function<std::string()>& where) noexcept;

  std::atomic<std::int64_t> usual_ns_{0}, usual_rows_{0};
  std::atomic<std::uint64_t> quick_{0};  // reads since there was a slow one
  std::atomic<bool> any_{false};         // slow ones
  mutable std::mutex mutex_;
  std::map<std::string, SlowFile> files_;
};

}  // namespace millrace::data::detail
