// CPU time used by threads of this process, as the system counts it.
#pragma once

#include <thread>
#include <vector>

namespace millrace::data::detail {

struct ThreadUsage {
  double cpu_seconds = 0;
  double queued_seconds = 0;  // ready to run, but no core was free; 0 if the system does not report it
};

// Lowers the calling thread's priority by five levels of `nice`. Does nothing if that is not allowed.
void yield_to_the_step() noexcept;
[[nodiscard]] int this_thread_id() noexcept;  // the system's id of the calling thread

// Sum over running threads. ids[i] is the system's id of threads[i], 0 if it has not started. If /proc can't be read, the
// threads' CPU clocks are used.
[[nodiscard]] ThreadUsage usage_of(const std::vector<std::thread>& threads, const std::vector<int>& ids) noexcept;
[[nodiscard]] double this_thread_cpu_seconds() noexcept;

}  // namespace millrace::data::detail
