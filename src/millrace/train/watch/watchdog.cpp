#include "millrace/train/watch/watchdog.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>
#include <system_error>
#include <utility>

#include "millrace/base/doing.h"
#include "millrace/base/format.h"
#include "millrace/base/median.h"
#include "millrace/system/crash.h"

namespace millrace {
namespace {

constexpr double kTimes = 50;
// seconds; if look() is called after a longer pause than this, the process was stopped or the machine slept, and the pause does
// not count
constexpr double kOwnPause = 10;
constexpr std::size_t kKept = 64;

std::string what_is_done() {
  std::array<char, 512> text{};
  return describe_doing(text.data(), text.size()) > 0 ? text.data() : "between steps";
}

// True during a save. A rank without the run folder counts as saving while it waits for the rank that has the folder.
bool is_saving() {
  const Doing::Text task = doing_now(Doing::Level::task), phase = doing_now(Doing::Level::phase);
  return std::string_view(phase.data()) == "snapshot" || std::string_view(task.data()).starts_with(kSaveTask);
}

std::string remedy() {
  const Doing::Text phase = doing_now(Doing::Level::phase);
  const std::string_view word = phase.data();
  if (word == "waiting for data") return "look at the disk or the network that holds the data";
  if (word == "snapshot" || word == "log line") return "look at the disk that holds the run folder";
  std::string text = "if this never ends, a library has a fault: stop the run and ";
  return text.append(kCrashRemedy);
}

}  // namespace

Watchdog::Watchdog(Watchdog::Options options)
    : options_(std::move(options)), beat_(doing_beat()), since_(options_.clock()), looked_(since_) {
  if (!options_.leave) options_.leave = [](int exit_code) { ::_exit(exit_code); };
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::start() {
  if (options_.limit_s <= 0) return;
  const auto watch = [this] {
    block_signals_in_this_thread();
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, std::chrono::seconds(1), [this] { return ends_; })) look();
  };
  try {
    thread_ = std::thread(watch);
  } catch (const std::system_error&) {  // the system can't create a thread; a run works without a watchdog
  }
}

double Watchdog::limit() const { return std::max(options_.limit_s, slow_.empty() ? 0.0 : kTimes * median(slow_)); }

void Watchdog::look() {
  const double now = options_.clock();
  if (now - looked_ > kOwnPause) since_ += now - looked_;
  looked_ = now;
  const double waited = now - since_;
  if (const std::uint64_t beat = doing_beat(); beat != beat_) {
    if (reported_) options_.report("the run moves again after " + fixed(waited, 0) + " s");
    constexpr double kOneLook = 1.5;
    if (waited > kOneLook) {
      if (slow_.size() < kKept) slow_.push_back(0);
      slow_[slow_count_++ % kKept] = waited;
    }
    beat_ = beat;
    since_ = now;
    reported_ = false;
    return;
  }
  if (waited < limit()) return;
  if (!std::exchange(reported_, true)) report_standstill(waited);
  if (const int signal = options_.signal(); signal != 0 && !is_saving()) obey(signal, waited);
}

void Watchdog::report_standstill(double waited) const {
  std::string next = remedy();
  if (options_.signal() != 0 && is_saving()) next += "; a second signal ends the run at once and loses the save in progress";
  options_.report("the run has not moved for " + fixed(waited, 0) + " s\n  where    " + what_is_done() + "\n  next     " + next);
}

void Watchdog::obey(int signal, double waited) {
  const std::string saved = options_.saved();
  options_.report(std::string("stopped by ") + signal_name(signal) + " in a step that has not moved for " + fixed(waited, 0) +
                  " s: steps after the last snapshot are lost" +
                  (saved.empty() ? "; nothing was saved yet" : "; the same command resumes from " + saved));
  options_.leave(exit_code_for(signal));
}

}  // namespace millrace
