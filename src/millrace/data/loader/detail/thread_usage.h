// What threads of this process have cost, as the system counts it.
#pragma once

#include <thread>
#include <vector>

namespace millrace::data::detail {

struct ThreadUsage {
  double cpu_seconds = 0;
  double queued_seconds = 0;  // ready to run, but no core was free; 0 where the system does not tell
};

// The calling thread gives way to others that want its core, five levels of `nice`. Where that is not allowed nothing changes.
void yield_to_the_step() noexcept;
[[nodiscard]] int this_thread_id() noexcept;  // the system's number of the calling thread

// Sum over running threads. ids[i] is the system's number of threads[i], 0 when it has not begun; where /proc can't be read the
// thread's clock is.
[[nodiscard]] ThreadUsage usage_of(const std::vector<std::thread>& threads, const std::vector<int>& ids) noexcept;
[[nodiscard]] double this_thread_cpu_seconds() noexcept;

}  // namespace millrace::data::detail
