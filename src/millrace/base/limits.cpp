#include "millrace/base/limits.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstddef>

namespace millrace {
namespace {

std::atomic<std::uint64_t> kept{0};

}  // namespace

std::optional<std::uint64_t> limit_of(int resource) noexcept {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::nullopt;
  return static_cast<std::uint64_t>(limit.rlim_cur);
}

std::uint64_t mapped_bytes() noexcept {
  static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  std::array<char, 64> text{};
  const ssize_t got = ::read(file, text.data(), text.size());
  ::close(file);
  std::uint64_t pages = 0;
  if (got > 0) std::from_chars(text.data(), text.data() + got, pages);  // the first number is the size
  return pages * page;
}

std::optional<std::uint64_t> address_space_left() noexcept {
  const std::optional<std::uint64_t> limit = limit_of(RLIMIT_AS);
  if (!limit) return std::nullopt;
  return *limit - std::min(*limit, mapped_bytes());
}

void keep_address_space(std::uint64_t bytes) noexcept { kept.store(bytes, std::memory_order_relaxed); }

std::uint64_t kept_address_space() noexcept { return kept.load(std::memory_order_relaxed); }

bool may_map(std::uint64_t bytes) noexcept {
  const std::uint64_t rest = kept_address_space();
  if (rest == 0) return true;
  const std::optional<std::uint64_t> left = address_space_left();
  return !left || (*left >= rest && *left - rest >= bytes);
}

std::uint64_t thread_stack_bytes() noexcept {
  std::size_t bytes = std::size_t{8} << 20U;
  pthread_attr_t attributes;
  if (::pthread_getattr_default_np(&attributes) != 0) return bytes;
  (void)::pthread_attr_getstacksize(&attributes, &bytes);
  (void)::pthread_attr_destroy(&attributes);
  return bytes;
}

}  // namespace millrace
