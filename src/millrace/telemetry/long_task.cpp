#include "millrace/telemetry/long_task.h"

#include <chrono>
#include <system_error>
#include <utility>

#include "millrace/base/clock.h"
#include "millrace/base/format.h"
#include "millrace/system/signals.h"

namespace millrace::telemetry {

LongTask::LongTask(Console& console, std::string what, double silence_s)
    : console_(console), what_(std::move(what)), began_(steady_seconds()) {
  try {
    thread_ = std::thread([this, silence_s] {
      block_signals_in_this_thread();
      show(silence_s);
    });
  } catch (const std::system_error&) {  // no thread can be made, so nothing is shown; the task itself does not need the thread
  }
}

LongTask::~LongTask() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void LongTask::expect(double seconds) {
  const std::lock_guard lock(mutex_);
  expected_ = seconds;
}

void LongTask::show(double silence_s) {
  using Seconds = std::chrono::duration<double>;
  std::unique_lock lock(mutex_);
  if (wake_.wait_for(lock, Seconds(silence_s), [this] { return ends_; })) return;
  if (!console_.is_terminal()) return console_.line(text(0));
  do console_.progress({.extra = text(steady_seconds() - began_)});
  while (!wake_.wait_for(lock, Seconds(1), [this] { return ends_; }));
  console_.end_progress();
}

// Returns "timing kernels in bf16: about 40 s"; with the time so far "timing kernels in bf16: 12 s of about 40 s".
std::string LongTask::text(double so_far) const {
  const std::string about = expected_ > 0 ? "about " + human_duration(expected_) : "";
  if (so_far <= 0) return what_ + (about.empty() ? "" : ": " + about);
  return what_ + ": " + human_duration(so_far) + (about.empty() ? "" : " of " + about);
}

}  // namespace millrace::telemetry
