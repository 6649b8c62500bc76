// OpenMP's threads give up their cores sooner while other programs want them.
//
// Threads that spin between parallel loops are the fastest while the cores are this process's own, and the slowest while another
// program needs them (docs/decisions/0037 has the figures). libgomp is told once, when it is loaded, how long to spin
// (system/openmp.h). But where it holds more threads than there are CPUs they spin 100 times only before they sleep (its manual,
// GOMP_SPINCOUNT): so a few idle threads of OpenMP's, made while others want the cores and ended when they don't, switch it.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "millrace/device/neighbours.h"

namespace millrace::device {

// Idle threads of OpenMP's: while there is one of these all of the process's spin briefly. Where the system gives no threads it
// is nothing.
class ShortWaits {
 public:
  ShortWaits();
  ~ShortWaits();
  ShortWaits(const ShortWaits&) = delete;
  ShortWaits& operator=(const ShortWaits&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ends_ = false;
  std::thread thread_;
};

// When waits should be short, by the cores that others had while this process's threads waited (Neighbours): after some looks in
// a row, since a moment is not worth a switch. It does not matter how many cores there are: each parallel loop waits for the one
// thread that another program keeps from its core.
class WaitRule {
 public:
  // After a look; nullopt: too little work was done to tell, which changes nothing.
  [[nodiscard]] bool after(std::optional<double> cores);

 private:
  bool is_short_ = false;
  int busy_ = 0, quiet_ = 0;  // looks in a row that saw others, or nobody
};

// How long to wait between looks, so that one tells fractions of a core.
[[nodiscard]] double seconds_between_looks(int cpus) noexcept;

// Looks some times a second, in a thread of its own, until destruction. Nothing where the environment says how OpenMP is to wait,
// or where the kernel does not tell of others. set_threads() comes first; one is enough for a process.
class SharedCores {
 public:
  SharedCores();
  ~SharedCores();
  SharedCores(const SharedCores&) = delete;
  SharedCores& operator=(const SharedCores&) = delete;

 private:
  void watch();
  Neighbours neighbours_;
  WaitRule rule_;
  std::unique_ptr<ShortWaits> waits_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace millrace::device
