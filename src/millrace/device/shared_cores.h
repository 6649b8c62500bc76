// Makes OpenMP's threads release their cores sooner while other programs want them.
//
// Threads that spin between parallel loops are fastest while the cores belong to this process, and slowest while another program
// needs them (docs/decisions/0037 has the figures). libgomp reads how long to spin only once, when it is loaded
// (system/openmp.h). But while it holds more threads than there are CPUs, its threads spin only 100 times before they sleep (its
// manual, GOMP_SPINCOUNT). So a few idle OpenMP threads switch libgomp to short waits: they are created when other programs want
// the cores, and ended afterwards.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "millrace/device/neighbours.h"

namespace millrace::device {

// Returns how many seconds apart measurements must be to show fractions of a core.
[[nodiscard]] double seconds_between_looks(int cpus) noexcept;

// While this object exists, a separate thread measures the other programs' use of the cores several times a second. Call
// set_threads() first. A process needs only one object. Does nothing if the environment sets how OpenMP waits, or if the kernel
// does not report other programs.
class SharedCores {
 public:
  // Idle OpenMP threads: while such an object exists, all threads of the process spin briefly. Has no effect if the system
  // refuses threads.
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

  // Decides when waits should be short, from the cores that other programs used while this process's threads waited
  // (Neighbours). The rule switches only after several measurements in a row agree, because a short disturbance is not worth a
  // switch. The number of cores does not matter, because each parallel loop waits for the one thread whose core another program
  // uses.
  class WaitRule {
   public:
    // Call this after a measurement. Returns whether waits should be short. If `cores` is nullopt, too little work was done to
    // decide, and nothing changes.
    [[nodiscard]] bool after(std::optional<double> cores);

   private:
    bool is_short_ = false;
    int busy_ = 0, quiet_ = 0;  // numbers of successive measurements with and without other programs on the cores
  };

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
