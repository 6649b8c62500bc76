// Replaces some functions of glibc and libstdc++. With the originals, programs built here would need a newer glibc (above 2.34)
// or libstdc++ (above that of gcc 11) than Ubuntu 22.04, RHEL 9 and similar systems have. base/folder.cmake makes the linker
// (--wrap) redirect all calls to the functions here, including calls from static libraries.
#include <pthread.h>
#include <sys/random.h>

#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>

// NOLINTBEGIN(bugprone-reserved-identifier, readability-identifier-naming): the linker's names

// The oldest version of hypot in glibc. It differs from the newest version only in that it also reports an overflow through
// errno.
extern "C" double millrace_first_hypot(double x, double y);
__asm__(".symver millrace_first_hypot, hypot@GLIBC_2.2.5");

extern "C" double __wrap_hypot(double x, double y);
extern "C" double __wrap_hypot(double x, double y) { return ::millrace_first_hypot(x, y); }

// Replaces arc4random_buf, which Expat calls for the salt of its hash tables.
extern "C" void __wrap_arc4random_buf(void* target, std::size_t bytes);
extern "C" void __wrap_arc4random_buf(void* target, std::size_t bytes) {
  auto* at = static_cast<std::byte*>(target);
  while (bytes > 0) {
    const ssize_t got = ::getrandom(at, bytes, 0);
    if (got < 0 && errno != EINTR) std::abort();  // arc4random_buf can't report a failure either: it aborts
    if (got <= 0) continue;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
}

// Replaces arc4random, which a static libstdc++ calls for std::random_device.
extern "C" std::uint32_t __wrap_arc4random();
extern "C" std::uint32_t __wrap_arc4random() {
  std::uint32_t number = 0;
  ::__wrap_arc4random_buf(&number, sizeof number);
  return number;
}

// Replaces std::condition_variable::wait(std::unique_lock<std::mutex>&), which got a new symbol version when gcc 12 made it
// noexcept. In this ABI the first argument of a member function is its object.
extern "C" void __wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(std::condition_variable* condition,
                                                                                 std::unique_lock<std::mutex>* lock);
extern "C" void __wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(std::condition_variable* condition,
                                                                                 std::unique_lock<std::mutex>* lock) {
  ::pthread_cond_wait(condition->native_handle(), lock->mutex()->native_handle());
}

// NOLINTEND(bugprone-reserved-identifier, readability-identifier-naming)
