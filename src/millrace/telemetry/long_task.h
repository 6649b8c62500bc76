// Tells the user about tasks that take long.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "millrace/telemetry/console.h"

namespace millrace::telemetry {

// If the task lasts more than two seconds, the console shows its name and, if known, about how long it takes. A terminal shows
// it as the progress line and updates it each second until the destructor; elsewhere it is a single line. A separate thread
// writes. If that thread can't be created, nothing is shown.
class LongTask {
 public:
  // `what`: "timing kernels in bf16". `silence_s`: seconds before the line appears. `console` must outlive this object.
  LongTask(Console& console, std::string what, double silence_s = 2);
  ~LongTask();
  LongTask(const LongTask&) = delete;
  LongTask& operator=(const LongTask&) = delete;
  void expect(double seconds);  // `seconds`: the time that the whole task takes; 0 = not known

 private:
  void show(double silence_s);
  [[nodiscard]] std::string text(double so_far) const;

  Console& console_;
  std::string what_;
  double began_;
  std::mutex mutex_;  // guards the two members below
  double expected_ = 0;
  bool ends_ = false;
  std::condition_variable wake_;
  std::thread thread_;
};

}  // namespace millrace::telemetry
