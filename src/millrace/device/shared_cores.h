// Makes OpenMP's threads release their cores sooner while other programs want them.
//
// Threads that spin between parallel loops are fastest while the cores belong to this process, and slowest while another program
// needs them (docs/decisions/0037 has the figures). libgomp reads only once, when it is loaded, how long to spin
// (system/openmp.h). But if it holds more threads than there are CPUs, they spin only 100 times before they sleep (its manual,
// GOMP_SPINCOUNT): so a few idle OpenMP threads, created while other programs want the cores and ended afterwards, switch it.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "millrace/device/neighbours.h"

namespace millrace::device {

// The time between measurements that suffices to see fractions of a core.
[[nodiscard]] double seconds_between_looks(int cpus) noexcept;

// Measures several times a second, in its own thread, until destruction. Call set_threads() first; one object is enough for a
// process. Does nothing if the environment sets how OpenMP waits, or if the kernel does not report other programs.
class SharedCores {
 public:
  // Idle OpenMP threads: while such an object exists, all of the process's threads spin briefly. If the system refuses threads,
  // it has no effect.
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

  // Decides when waits should be short, by the cores that other programs used while this process's threads waited (Neighbours):
  // after several measurements in a row, since a moment is not worth a switch. The number of cores does not matter: each parallel
  // loop waits for the one thread whose core another program uses.
  class WaitRule {
   public:
    // Call it after a measurement; nullopt: too little work was done to decide, and nothing changes.
    [[nodiscard]] bool after(std::optional<double> cores);

   private:
    bool is_short_ = false;
    int busy_ = 0, quiet_ = 0;  // measurements in a row that found other programs, or found none
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
