#include "millrace/device/preflight.h"

#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/device/device.h"
#include "millrace/device/tensor_memory.h"
#include "millrace/system/machine.h"
#include "millrace/system/process_limits.h"

namespace millrace::device {
namespace {

constexpr std::uint64_t kShared = std::uint64_t{160} << 20U;
constexpr std::uint64_t kOfEachThread = std::uint64_t{8} << 20U;

std::string bytes_text(std::uint64_t bytes) { return human_bytes(static_cast<double>(bytes)); }

// The number of this process's threads, as the kernel counts them; 0 if the kernel does not report the number.
std::size_t tasks() {
  std::error_code error;
  std::size_t count = 0;
  std::filesystem::directory_iterator entry("/proc/self/task", error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) ++count;
  return count;
}

// Threads that all wait until destruction, so that they exist at the same time.
class Crowd {
 public:
  Crowd() = default;
  ~Crowd() {
    {
      const std::lock_guard lock(mutex_);
      may_go_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;
  void add() {
    threads_.emplace_back([this] {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return may_go_; });
    });
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool may_go_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

int most_threads() {
  constexpr int kTimes = 4;
  constexpr int kAlways = 16;  // always allowed, because a small machine may try the settings of a larger one
  return std::max(kTimes * cpu_info().logical_cores, kAlways);
}

void require_threads(int count) {
  const std::size_t before = tasks();
  int made = 0;
  try {
    Crowd crowd;
    for (; made < count; ++made) crowd.add();
  } catch (const std::system_error& error) {
    throw DeviceError({"only " + std::to_string(made) + " of the " + std::to_string(count) +
                           " needed threads could be created: " + error.code().message(),
                       thread_account(), "raise the limit, end other programs, or use fewer threads (--device.threads=1)"});
  }
  // Waits until the kernel has removed the joined threads. Until then these threads count towards the limit, and OpenMP's next
  // thread could be refused.
  constexpr int kTries = 2000;
  for (int i = 0; i < kTries && tasks() > before; ++i) std::this_thread::sleep_for(std::chrono::microseconds(500));
}

std::uint64_t library_address_space(int threads) noexcept {
  // Measured by tests/limits in the cosmology recipe: with 64 MB reserved in all, oneDNN crashed in 3 of 40 runs; with 96 MB,
  // in 0 of 60.
  return kShared + kOfEachThread * static_cast<std::uint64_t>(threads);
}

void guard_address_space(int threads) {
  const std::optional<std::uint64_t> left = address_space_left();
  if (!left) return;
  // The C library reserves 64 MB for the small blocks of each thread. These reservations may use at most a thirty-second of the
  // remaining space.
  constexpr std::uint64_t kArena = std::uint64_t{64} << 20U;
  const std::uint64_t arenas = std::clamp<std::uint64_t>(*left / (32 * kArena), 1, 1024);
  mallopt(M_ARENA_MAX, static_cast<int>(arenas));
  // The stacks of OpenMP's threads, and of the same number of threads in LibTorch's second pool.
  const std::uint64_t stacks = 2 * static_cast<std::uint64_t>(threads - 1) * thread_stack_bytes();
  const std::uint64_t needed = stacks + library_address_space(threads);
  if (*left < needed) {
    const std::uint64_t limit = limit_of(RLIMIT_AS).value_or(0);
    throw DeviceError({"the address space of this process is limited to " + bytes_text(limit) +
                           " (ulimit -v), too little to compute anything: the program and its libraries take " +
                           bytes_text(limit - *left + needed) + " with " + std::to_string(threads) +
                           (threads == 1 ? " thread" : " threads"),
                       "ulimit -v",
                       "raise the limit (ulimit -v unlimited)" +
                           std::string(threads == 1 ? "" : ", or use fewer threads (--device.threads=1)")});
  }
  count_tensor_memory();
  keep_address_space(library_address_space(threads) + (arenas > 1 ? kArena : 0));
}

void stand_back_for_memory() {
  std::ofstream("/proc/self/oom_score_adj") << "1000";
  count_tensor_memory();
  constexpr double kShare = 0.9;  // the remaining tenth is for the libraries' own allocations
  const auto free = kShare * static_cast<double>(available_memory_bytes());
  limit_resident_memory(private_resident_bytes() + static_cast<std::uint64_t>(free));
}

std::string memory_account() {
  std::string text = "peak resident " + bytes_text(peak_resident_bytes());
  if (const auto limit = limit_of(RLIMIT_AS))
    text += "; the address space is limited to " + bytes_text(*limit) + " (ulimit -v), of which " + bytes_text(mapped_bytes()) +
            " are in use";
  if (const auto limit = limit_of(RLIMIT_DATA)) text += "; data are limited to " + bytes_text(*limit) + " (ulimit -d)";
  if (const auto limit = Machine().memory_limit())
    text += "; the control group is limited to " + bytes_text(*limit) + " (memory.max)";
  return text + "; " + bytes_text(available_memory_bytes()) + " are free";
}

std::string thread_account() {
  std::vector<std::string> limits;
  if (const auto limit = limit_of(RLIMIT_NPROC))
    limits.push_back(with_commas(static_cast<std::int64_t>(*limit)) + " processes and threads of this user (ulimit -u)");
  if (const auto limit = Machine().thread_limit())
    limits.push_back(with_commas(static_cast<std::int64_t>(*limit)) + " processes and threads of the control group (pids.max)");
  if (const auto limit = limit_of(RLIMIT_AS))
    limits.push_back(bytes_text(*limit) + " of address space (ulimit -v), of which " + bytes_text(mapped_bytes()) +
                     " are in use and a stack takes " + bytes_text(thread_stack_bytes()));
  std::string text;
  for (const std::string& limit : limits) text += (text.empty() ? "limits: " : "; ") + limit;
  return text.empty() ? "no limit of this process is known; the machine may have reached its own limit (kernel.threads-max)"
                      : text;
}

}  // namespace millrace::device
