#include "millrace/system/process_limits.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstddef>

#include "millrace/base/error.h"
#include "millrace/base/format.h"

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
  if (got > 0) std::from_chars(text.data(), text.data() + got, pages);  // the first number in the file is the size, in pages
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

std::string start_refusal() {
  // `millrace --version` with LibTorch 2.11 of the CUDA wheel takes 430 MiB and 5 descriptors; the rest is a margin for other
  // versions of the system's libraries. tests/limits fails if the margin is too small.
  constexpr std::uint64_t kAddressSpace = std::uint64_t{480} << 20U;
  constexpr std::uint64_t kFiles = 16;
  if (const auto limit = limit_of(RLIMIT_AS); limit && *limit < kAddressSpace) {
    return to_text("DeviceError", {"the address space of this process is limited to " + human_bytes(static_cast<double>(*limit)) +
                                       " (ulimit -v), and the program takes " + human_bytes(static_cast<double>(kAddressSpace)) +
                                       " merely to start",
                                   "", "raise the limit (ulimit -v unlimited) and try again"});
  }
  if (const auto limit = limit_of(RLIMIT_NOFILE); limit && *limit < kFiles) {
    return to_text("DeviceError", {"this process may open " + std::to_string(*limit) +
                                       " files (ulimit -n), and the program needs " + std::to_string(kFiles) + " merely to start",
                                   "", "raise the limit (ulimit -n 65536) and try again"});
  }
  return "";
}

}  // namespace millrace
