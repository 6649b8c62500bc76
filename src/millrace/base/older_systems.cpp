// Three functions that programs built here would ask of a newer glibc (above 2.34) or libstdc++ (above gcc 11's) than
// Ubuntu 22.04, RHEL 9 and their like have. base/folder.cmake has the linker send their callers here (--wrap), those in static
// libraries too.
#include <pthread.h>
#include <sys/random.h>

#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstdlib>
#include <mutex>

// NOLINTBEGIN(bugprone-reserved-identifier, readability-identifier-naming): the linker's names

// The same function under the name of its first version, which differs in how it reports an overflow: through errno too.
extern "C" double millrace_first_hypot(double x, double y);
__asm__(".symver millrace_first_hypot, hypot@GLIBC_2.2.5");

extern "C" double __wrap_hypot(double x, double y);
extern "C" double __wrap_hypot(double x, double y) { return ::millrace_first_hypot(x, y); }

// Expat asks for the salt of its hash tables.
extern "C" void __wrap_arc4random_buf(void* target, std::size_t bytes);
extern "C" void __wrap_arc4random_buf(void* target, std::size_t bytes) {
  auto* at = static_cast<std::byte*>(target);
  while (bytes > 0) {
    const ssize_t got = ::getrandom(at, bytes, 0);
    if (got < 0 && errno != EINTR) std::abort();  // as arc4random_buf does: it has no way to fail
    if (got <= 0) continue;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
}

// std::condition_variable::wait(std::unique_lock<std::mutex>&), which became noexcept, and so another version, with gcc 12. A
// member function's object is its first argument in this ABI.
extern "C" void __wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(std::condition_variable* condition,
                                                                                 std::unique_lock<std::mutex>* lock);
extern "C" void __wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(std::condition_variable* condition,
                                                                                 std::unique_lock<std::mutex>* lock) {
  ::pthread_cond_wait(condition->native_handle(), lock->mutex()->native_handle());
}

// NOLINTEND(bugprone-reserved-identifier, readability-identifier-naming)
