// Reports a run that no longer advances, and ends it on a signal that its loop does not notice.
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

// The beginning of the name of a save's task (base/doing.h): "the save of step 12".
inline constexpr const char* kSaveTask = "the save of step ";

// Watches what the loop says that it is doing (base/doing.h). A phase is reported once if it takes longer than the limit and
// longer than 50 times the median of the latest slow phases. The report has the current task and advice. A second report follows
// when the phase ends. While a reported phase lasts, the first signal ends the process. Otherwise the loop itself obeys the
// signal after its step. While a state is being saved, the first signal waits for the save and only the second ends the process,
// as everywhere (system/signals.h).
class Watchdog {
 public:
  struct Options {
    double limit_s = 60;                                     // train.hang_limit, in seconds; 0 = never
    std::function<void(const std::string&)> report;          // must not be null; called by the watchdog's thread
    std::function<std::string()> saved = [] { return ""; };  // the last state on disk: "snapshot PATH"; "" = no snapshot
    std::function<void(int exit_code)> leave;                // ends the process at once; null = _exit is called
    std::function<double()> clock = steady_seconds;
    std::function<int()> signal = pending_signal;
  };

  explicit Watchdog(Options options);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void start();  // starts a thread that calls look() once a second until destruction; does nothing if the system can't create the
                 // thread
  void look();   // makes one check

 private:
  [[nodiscard]] double limit() const;
  void report_standstill(double waited) const;
  void obey(int signal, double waited);

  Options options_;
  std::uint64_t beat_;
  double since_, looked_;  // times of the clock: when the beat last changed, and at the last look
  bool reported_ = false;
  std::vector<double> slow_;  // seconds of the latest phases that took longer than one look
  std::size_t slow_count_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace millrace
