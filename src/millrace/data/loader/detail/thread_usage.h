// The CPU time that threads of this process have used, from the system's counters.
#pragma once

#include <thread>
#include <vector>

namespace millrace::data::detail {

struct ThreadUsage {
  double cpu_seconds = 0;
  double queued_seconds = 0;  // time in which a thread was ready to run but no core was free; 0 if the system does not report it
};

// Lowers the priority of the calling thread by five levels of `nice`, so that a reader yields to the step. Does nothing if that
// is not allowed.
void yield_to_the_step() noexcept;
[[nodiscard]] int this_thread_id() noexcept;  // returns the system's id of the calling thread

// Returns the sum over threads that run. ids[i] is the system's id of threads[i]; 0 = that thread has not started. If /proc
// can't be read, the threads' CPU clocks are used.
[[nodiscard]] ThreadUsage usage_of(const std::vector<std::thread>& threads, const std::vector<int>& ids) noexcept;
[[nodiscard]] double this_thread_cpu_seconds() noexcept;

}  // namespace millrace::data::detail
