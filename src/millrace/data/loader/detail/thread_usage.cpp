#include "millrace/data/loader/detail/thread_usage.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace millrace::data::detail {
namespace {

double seconds_of(clockid_t clock) noexcept {
  timespec time{};
  if (::clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Adds a thread's times from its file schedstat, which holds "nanoseconds on a core, nanoseconds queued, time slices".
bool add_from_proc(int id, ThreadUsage& sum) noexcept {
  std::array<char, 64> path{};
  std::snprintf(path.data(), path.size(), "/proc/self/task/%d/schedstat", id);
  const int file = ::open(path.data(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  std::array<char, 96> text{};
  const ssize_t size = ::read(file, text.data(), text.size() - 1);
  ::close(file);
  if (size <= 0) return false;
  char* end = nullptr;
  const unsigned long long cpu = std::strtoull(text.data(), &end, 10);
  const unsigned long long queued = std::strtoull(end, nullptr, 10);
  if (cpu == 0) return false;  // 0: the kernel does not measure the thread's times
  sum.cpu_seconds += static_cast<double>(cpu) * 1e-9;
  sum.queued_seconds += static_cast<double>(queued) * 1e-9;
  return true;
}

}  // namespace

void yield_to_the_step() noexcept {
  const int now = ::getpriority(PRIO_PROCESS, 0);
  (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(this_thread_id()), now + 5);
}

int this_thread_id() noexcept { return static_cast<int>(::syscall(SYS_gettid)); }

double this_thread_cpu_seconds() noexcept { return seconds_of(CLOCK_THREAD_CPUTIME_ID); }

ThreadUsage usage_of(const std::vector<std::thread>& threads, const std::vector<int>& ids) noexcept {
  ThreadUsage sum;
  for (std::size_t i = 0; i < threads.size() && i < ids.size(); ++i) {
    if (ids[i] == 0 || add_from_proc(ids[i], sum)) continue;
    clockid_t clock{};
    // The pthread_t of a joinable thread is valid until the thread is joined.
    if (::pthread_getcpuclockid(const_cast<std::thread&>(threads[i]).native_handle(), &clock) == 0) {
      sum.cpu_seconds += seconds_of(clock);
    }
  }
  return sum;
}

}  // namespace millrace::data::detail
