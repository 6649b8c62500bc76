// Says what is done where it takes long.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "millrace/telemetry/console.h"

namespace millrace::telemetry {

// After two seconds the console shows the task and about how long it takes, if that is known: as one line, or on a terminal as
// the line of progress, rewritten each second until the destruction. A thread of its own writes; without one nothing is shown.
class LongTask {
 public:
  // `what`: "timing kernels in bf16". `silence_s` is the time before the line. Refers to the console.
  LongTask(Console& console, std::string what, double silence_s = 2);
  ~LongTask();
  LongTask(const LongTask&) = delete;
  LongTask& operator=(const LongTask&) = delete;
  void expect(double seconds);  // of the whole task; 0 = not known

 private:
  void show(double silence_s);
  [[nodiscard]] std::string text(double so_far) const;

  Console& console_;
  std::string what_;
  double began_;
  std::mutex mutex_;  // guards the two below
  double expected_ = 0;
  bool ends_ = false;
  std::condition_variable wake_;
  std::thread thread_;
};

}  // namespace millrace::telemetry
