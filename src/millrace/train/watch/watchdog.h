// Says when a run no longer moves, and obeys a signal that its loop can't.
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

// How the task of a save begins (base/doing.h): "the save of step 12".
inline constexpr const char* kSaveTask = "the save of step ";

struct WatchdogOptions {
  double limit_s = 60;                                     // train.hang_limit; 0 = never
  std::function<void(const std::string&)> say;             // required; called by the watchdog's thread
  std::function<std::string()> saved = [] { return ""; };  // "snapshot PATH": where the last state on disk is; "" = none
  std::function<void(int exit_code)> leave;                // ends the process at once; null = _exit
  std::function<double()> clock = steady_seconds;
  std::function<int()> signal = pending_signal;
};

// Looks at base/doing.h. A phase that takes longer than the limit, and than 50 times what such phases took so far, is told once,
// with what was being done and what to try, and when it comes back. While it lasts, the first signal ends the process, which
// otherwise the loop would do after its step; but not while a state is being saved, which is what the signal asks for: there only
// a second one does, as it does everywhere (system/signals.h).
class Watchdog {
 public:
  explicit Watchdog(WatchdogOptions options);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void start();  // a thread that looks once a second, until destruction; none where the system allows none
  void look();   // once

 private:
  [[nodiscard]] double limit() const;
  void tell(double waited) const;
  void obey(int signal, double waited);

  WatchdogOptions options_;
  std::uint64_t beat_;
  double since_, looked_;  // the clock, when the beat was new, and at the last look
  bool told_ = false;
  std::vector<double> slow_;  // seconds of phases that lasted for more than one look, the latest ones
  std::size_t slow_count_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace millrace
