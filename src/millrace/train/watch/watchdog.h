// Reports a run that no longer advances, and obeys a signal if its loop can't.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "millrace/base/clock.h"
#include "millrace/system/signals.h"

namespace millrace {

// The beginning of a save's task (base/doing.h): "the save of step 12".
inline constexpr const char* kSaveTask = "the save of step ";

// Reads base/doing.h. A phase that takes longer than the limit, and than 50 times what such phases took so far, is reported once,
// with the current task and advice, and again when it ends. While a reported phase lasts, the first signal ends the process;
// otherwise the loop obeys it after its step. While a state is being saved, which is what the signal asks for, only a second
// signal ends the process, as everywhere (system/signals.h).
class Watchdog {
 public:
  struct Options {
    double limit_s = 60;                                     // train.hang_limit; 0 = never
    std::function<void(const std::string&)> report;          // required; called by the watchdog's thread
    std::function<std::string()> saved = [] { return ""; };  // "snapshot PATH": the last state on disk; "" = no snapshot
    std::function<void(int exit_code)> leave;                // ends the process at once; null = _exit
    std::function<double()> clock = steady_seconds;
    std::function<int()> signal = pending_signal;
  };

  explicit Watchdog(Options options);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void start();  // starts a thread that looks once a second, until destruction; does nothing if the system refuses the thread
  void look();   // looks once

 private:
  [[nodiscard]] double limit() const;
  void report_standstill(double waited) const;
  void obey(int signal, double waited);

  Options options_;
  std::uint64_t beat_;
  double since_, looked_;  // the clock at the last new beat, and at the last look
  bool reported_ = false;
  std::vector<double> slow_;  // seconds of the latest phases that lasted for more than one look
  std::size_t slow_count_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace millrace
