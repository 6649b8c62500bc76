#include "millrace/device/shared_cores.h"

#include <ATen/Parallel.h>
#include <omp.h>
#include <pthread.h>
#include <ctime>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <system_error>

#include "millrace/base/error.h"
#include "millrace/device/preflight.h"
#include "millrace/system/openmp.h"
#include "millrace/system/signals.h"

namespace millrace::device {
namespace {

constexpr double kWanted = 0.2;  // cores; if other programs use this many, they take cores that this process needs
constexpr double kAlone = 0.1;
constexpr int kBusyLooks = 2;
constexpr int kQuietLooks = 5;
// Seconds between measurements if there are two CPUs. Neighbours needs a tenth of a second of work.
constexpr double kEvery = 0.12;
constexpr double kMostOfACore = 0.002;  // share of a core that measuring may cost

// The number of idle OpenMP threads that must be added so that OpenMP has more threads than there are CPUs; 0 if it already has
// more.
int idle_threads() { return std::max(0, omp_get_num_procs() - at::get_num_threads() + 1); }

double thread_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

SharedCores::ShortWaits::ShortWaits() {
  const int idle = idle_threads();
  if (idle == 0) return;
  try {
    require_threads(idle + 1);  // checked first, because OpenMP ends the process if it can't create a thread
    thread_ = std::thread([this, idle] {
      block_signals_in_this_thread();
      ::pthread_setname_np(::pthread_self(), "mr-idle");
#pragma omp parallel num_threads(idle + 1)
      { asm volatile("" ::: "memory"); }
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return ends_; });
    });
  } catch (const DeviceError&) {
  } catch (const std::system_error&) {
  }
}

SharedCores::ShortWaits::~ShortWaits() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();  // this also ends the OpenMP threads that thread_ created
}

bool SharedCores::WaitRule::after(std::optional<double> cores) {
  if (!cores) return is_short_;
  busy_ = *cores >= kWanted ? busy_ + 1 : 0;
  quiet_ = *cores < kAlone ? quiet_ + 1 : 0;
  if (busy_ >= kBusyLooks) is_short_ = true;
  if (quiet_ >= kQuietLooks) is_short_ = false;
  return is_short_;
}

// The time grows with the square root of the number of CPUs. The kernel counts each CPU's time in hundredths of a second, so the
// error of other programs' time grows in the same way.
double seconds_between_looks(int cpus) noexcept { return kEvery * std::sqrt(std::max(1.0, cpus / 2.0)); }

SharedCores::SharedCores() {
  if (!are_openmp_waits_ours()) return;
  try {
    thread_ = std::thread([this] { watch(); });
  } catch (const std::system_error&) {  // a run works without this thread
  }
}

SharedCores::~SharedCores() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void SharedCores::watch() {
  block_signals_in_this_thread();
  ::pthread_setname_np(::pthread_self(), "mr-cores");
  const double least = seconds_between_looks(omp_get_num_procs());
  double every = least;
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, std::chrono::duration<double>(every), [this] { return ends_; })) {
    const double began = thread_cpu_seconds();
    try {
      const bool is_short = rule_.after(neighbours_.take_recent_cores());
      if (is_short && waits_ == nullptr) waits_ = std::make_unique<ShortWaits>();
      if (!is_short) waits_.reset();
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): no memory to measure: the next try may have it
    }
    every = std::max(least, (thread_cpu_seconds() - began) / kMostOfACore);
  }
}

}  // namespace millrace::device
