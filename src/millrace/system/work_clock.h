// Times work on a machine that other programs may use at the same time. For Linux only.
#pragma once

#include <cstdint>
#include <vector>

namespace millrace {

// Times pieces of work, each from start() to stop(). Covers only threads that exist at construction, so run the work once before
// you make the clock. Use it from one thread.
class WorkClock {
 public:
  // All members are in milliseconds.
  struct Time {
    double wall = 0;
    // Milliseconds that the busiest thread of this process was on a core. On an idle machine, and for work that does not sleep,
    // they equal the wall time. If other programs run, they are the wall time that the work would take without those programs.
    double busy = 0;
  };

  WorkClock();
  void start();
  [[nodiscard]] Time stop();

 private:
  struct Thread {
    int id = 0;
    std::int64_t began_ns = 0;  // time on a core at start(); negative: the thread has ended
  };
  std::vector<Thread> threads_;
  std::int64_t began_ns_ = 0;
};

// Returns true if no other program took cores from the work: its wall time was hardly longer than its busiest thread's time on a
// core.
[[nodiscard]] bool had_the_cores(const WorkClock::Time& time) noexcept;

// Two implementations of the same work, timed in turns. Each implementation's time is the least of its times, because other
// programs disturbed that run least.
struct Comparison {
  double first_ms = 0, second_ms = 0;
  bool disturbed = false;  // true: other programs disturbed every run of one implementation, so both times are busy times, not
                           // wall times
};
[[nodiscard]] Comparison compare(const std::vector<WorkClock::Time>& first,
                                 const std::vector<WorkClock::Time>& second);  // neither list may be empty
// Text that is appended to a reason if its times come from a disturbed comparison.
inline constexpr const char* kDisturbed = "; other programs used the cores, so the times are those of Millrace's busiest thread";

}  // namespace millrace
