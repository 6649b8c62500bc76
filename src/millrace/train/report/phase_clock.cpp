#include "millrace/train/report/phase_clock.h"

#include <exception>

#include "millrace/base/clock.h"

namespace millrace {
namespace {

constexpr std::int64_t kOneOf = 8, kNth = 4;
constexpr std::size_t kMostMarks = 2048;  // most marks between two log lines

}  // namespace

PhaseClock::PhaseClock(c10::Device device, std::int64_t every) : clock_(device), every_(every) {}

PhaseClock::~PhaseClock() { stop_watching(); }

void PhaseClock::begin_step(std::int64_t step) {
  stop_watching();  // stops the watch that remains if the previous step failed
  const bool is_due = every_ < kOneOf || step % kOneOf == kNth;
  if (!is_due || has_failed_ || marks_.size() >= kMostMarks) return;
  if (!marks_.empty() && !marks_.back().ends_step) mark(telemetry::Phase::rest, /*ends_step=*/true);
  open_ = {telemetry::Phase::rest};
  mark(telemetry::Phase::rest, /*ends_step=*/false);
  telemetry::watch_spans(this);
  watches_ = true;
}

void PhaseClock::end_step() {
  if (!watches_) return;
  stop_watching();
  mark(telemetry::Phase::rest, /*ends_step=*/true);
}

void PhaseClock::read(double waited_seconds) {
  times_.waited(waited_seconds);
  if (!has_failed_) times_.add(marks_, clock_.between());
  marks_.clear();
  clock_.clear();
}

void PhaseClock::begins(telemetry::Phase phase) noexcept {
  try {
    open_.push_back(phase);
    mark(phase, /*ends_step=*/false);
  } catch (const std::exception&) {
    has_failed_ = true;
  }
}

void PhaseClock::ends() noexcept {
  try {
    if (open_.size() > 1) open_.pop_back();
    mark(open_.back(), /*ends_step=*/false);
  } catch (const std::exception&) {
    has_failed_ = true;
  }
}

void PhaseClock::mark(telemetry::Phase phase, bool ends_step) {
  if (has_failed_) return;
  clock_.mark();
  marks_.push_back({.phase = phase, .ends_step = ends_step, .host_ns = steady_nanoseconds()});
}

void PhaseClock::stop_watching() noexcept {
  if (watches_) telemetry::watch_spans(nullptr);
  watches_ = false;
}

}  // namespace millrace
