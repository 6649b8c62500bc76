#include "millrace/system/work_clock.h"

#include <dirent.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>

#include "millrace/base/clock.h"

namespace millrace {
namespace {

constexpr double kMs = 1e-6;
// Work that has the cores to itself may take longer than its busiest thread by this factor, because of wake-ups, page faults of
// other threads and timer ticks.
constexpr double kLongerBy = 1.05;
constexpr double kLongerByMs = 0.05;

// Returns the nanoseconds that a thread was on a core. The clock's number is computed from the thread's id, as in the kernel's
// include/linux/posix-timers_types.h, because no call returns the number for threads that this process did not create itself,
// such as OpenMP's.
std::int64_t on_core_ns(int thread) noexcept {
  constexpr unsigned kPerThread = 4;
  constexpr unsigned kScheduler = 2;
  const auto clock = static_cast<clockid_t>((~static_cast<unsigned>(thread) << 3U) | kPerThread | kScheduler);
  timespec time{};
  if (::clock_gettime(clock, &time) != 0) return -1;
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

std::vector<int> threads_of_this_process() {
  std::vector<int> ids;
  DIR* const folder = ::opendir("/proc/self/task");
  if (folder == nullptr) return ids;
  while (const dirent* entry = ::readdir(folder)) {  // NOLINT(concurrency-mt-unsafe): the folder is this function's own
    if (const int id = std::atoi(entry->d_name); id > 0) ids.push_back(id);  // NOLINT(cert-err34-c): "." and ".." give 0
  }
  ::closedir(folder);
  return ids;
}

double least(const std::vector<WorkClock::Time>& times, double WorkClock::Time::*member) {
  return (*std::ranges::min_element(times, {}, member)).*member;
}

}  // namespace

WorkClock::WorkClock() {
  for (const int id : threads_of_this_process()) threads_.push_back({id, 0});
}

void WorkClock::start() {
  for (Thread& thread : threads_) thread.began_ns = on_core_ns(thread.id);
  began_ns_ = steady_nanoseconds();
}

WorkClock::Time WorkClock::stop() {
  const std::int64_t wall = steady_nanoseconds() - began_ns_;
  std::int64_t busiest = 0;
  for (const Thread& thread : threads_) {
    if (thread.began_ns >= 0) busiest = std::max(busiest, on_core_ns(thread.id) - thread.began_ns);
  }
  if (busiest == 0) busiest = wall;  // if no thread's clock could be read, the wall time is used
  return {static_cast<double>(wall) * kMs, static_cast<double>(busiest) * kMs};
}

bool had_the_cores(const WorkClock::Time& time) noexcept { return time.wall <= kLongerBy * time.busy + kLongerByMs; }

Comparison compare(const std::vector<WorkClock::Time>& first, const std::vector<WorkClock::Time>& second) {
  const bool disturbed = std::ranges::none_of(first, had_the_cores) || std::ranges::none_of(second, had_the_cores);
  const auto member = disturbed ? &WorkClock::Time::busy : &WorkClock::Time::wall;
  return {least(first, member), least(second, member), disturbed};
}

}  // namespace millrace
