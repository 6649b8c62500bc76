// Measures work on a machine that other programs may use at the same time. Linux.
#pragma once

#include <cstdint>
#include <vector>

namespace millrace {

// Times pieces of work, each from start() to stop(). Covers the threads that exist at construction: warm up first. For one
// thread.
class WorkClock {
 public:
  // Milliseconds.
  struct Time {
    double wall = 0;
    // The longest time that any thread of this process was on a core. Alone on the machine, and for work that does not sleep, it
    // equals the wall time; next to other programs it is what the wall time would be without them.
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

// Whether the work had the cores to itself: it took hardly longer than its busiest thread was on a core.
[[nodiscard]] bool had_the_cores(const WorkClock::Time& time) noexcept;

// Two implementations of the same work, timed in turns: the least time of each, which other programs disturbed least.
struct Comparison {
  double first_ms = 0, second_ms = 0;
  bool disturbed = false;  // one of the two never had the cores to itself: these are busy times instead of wall times
};
[[nodiscard]] Comparison compare(const std::vector<WorkClock::Time>& first,
                                 const std::vector<WorkClock::Time>& second);  // neither is empty
// The end of a reason that gives the times of a disturbed comparison.
inline constexpr const char* kDisturbed = "; other programs had the cores, so the times are those of our busiest thread";

}  // namespace millrace
