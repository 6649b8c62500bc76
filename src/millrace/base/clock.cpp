#include "millrace/base/clock.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <chrono>
#include <ctime>
#include <optional>
#include <string_view>

namespace millrace {
namespace {

double seconds_of(clockid_t clock) noexcept {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Returns the seconds from boot to the start of the process; field 22 of /proc/self/stat has them in clock ticks.
std::optional<double> start_after_boot() noexcept {
  const int file = ::open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  std::array<char, 2048> buffer{};
  const ssize_t size = ::read(file, buffer.data(), buffer.size());
  ::close(file);
  if (size <= 0) return std::nullopt;
  std::string_view text(buffer.data(), static_cast<std::size_t>(size));
  const std::size_t name_end = text.rfind(')');  // the process's name in field 2 may hold anything, spaces and brackets included
  if (name_end == std::string_view::npos) return std::nullopt;
  text.remove_prefix(name_end);
  for (int field = 2; field < 22; ++field) {
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos) return std::nullopt;
    text.remove_prefix(space + 1);
  }
  std::uint64_t ticks = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), ticks).ec != std::errc{}) return std::nullopt;
  return static_cast<double>(ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace

std::int64_t steady_nanoseconds() noexcept {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

double steady_seconds() noexcept { return static_cast<double>(steady_nanoseconds()) * 1e-9; }

double seconds_since_process_start() noexcept {
  static const double start = start_after_boot().value_or(seconds_of(CLOCK_BOOTTIME));
  return seconds_of(CLOCK_BOOTTIME) - start;
}

double unix_seconds() noexcept { return seconds_of(CLOCK_REALTIME); }

}  // namespace millrace
