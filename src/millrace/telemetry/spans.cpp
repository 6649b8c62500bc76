#include "millrace/telemetry/spans.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/philox.h"
#include "millrace/telemetry/span_watch.h"

namespace millrace::telemetry {
namespace {

constexpr std::size_t kReservoir = 4096;

constinit thread_local SpanWatch* span_watch = nullptr;

std::size_t index_of(Phase phase) noexcept { return static_cast<std::size_t>(phase); }

// Returns the quantile by nearest rank: the smallest value for which at least `fraction` of the values are not larger.
double quantile(std::vector<float>& values, double fraction) {
  if (values.empty()) return 0;
  const auto rank = static_cast<std::size_t>(std::ceil(fraction * static_cast<double>(values.size())));
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(std::max<std::size_t>(rank, 1) - 1);
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

// Returns the phase's word for people; name_of() returns the word for logs.
const char* word_of(Phase phase) noexcept {
  constexpr std::array<const char*, kPhases> kWords = {"start-up",
                                                       "a trial",
                                                       "waiting for data",
                                                       "copying the batch to the device",
                                                       "preparing the batch",
                                                       "forward",
                                                       "backward",
                                                       "summing over ranks",
                                                       "optimiser update",
                                                       "metrics",
                                                       "log line",
                                                       "snapshot",
                                                       "validation",
                                                       "recording a profile",
                                                       "step"};
  return kWords[index_of(phase)];
}

// Returns true for phases whose inner spans are not counted. Those spans have the names of a step's phases but are not part of a
// step.
bool is_whole(Phase phase) noexcept { return phase == Phase::trials || phase == Phase::validate; }

}  // namespace

std::string_view name_of(Phase phase) noexcept {
  constexpr std::array<std::string_view, kPhases> kNames = {"startup", "trials",   "data_wait", "copy",      "prepare",
                                                            "forward", "backward", "reduction", "optimizer", "metrics",
                                                            "log",     "snapshot", "validate",  "profile",   "rest"};
  return kNames[index_of(phase)];
}

Span::Span(Timeline& timeline, Phase phase) noexcept
    : timeline_(&timeline), before_(timeline.enter(phase)), doing_(Doing::Level::phase, word_of(phase)) {
  if (span_watch != nullptr) span_watch->begins(phase);
}

Span::~Span() {
  if (span_watch != nullptr) span_watch->ends();
  timeline_->leave(before_);
}

void watch_spans(SpanWatch* watch) noexcept { span_watch = watch; }

Timeline::Timeline(Clock clock) noexcept : clock_(clock), since_ns_(clock()) {}

void Timeline::began_earlier(std::int64_t nanoseconds) noexcept { since_ns_ -= nanoseconds; }

void Timeline::turn_to(Phase phase) noexcept {
  const std::int64_t now = clock_();
  for (Accumulated* sums : {&window_, &total_}) sums->phase_ns[index_of(phase_)] += now - since_ns_;
  since_ns_ = now;
  phase_ = phase;
}

Phase Timeline::enter(Phase phase) noexcept {
  const Phase before = phase_;
  if (!is_whole(before)) turn_to(phase);
  return before;
}

void Timeline::begin_step() noexcept {
  turn_to(Phase::rest);
  step_begin_ns_ = since_ns_;
  in_step_ = true;
}

void Timeline::end_step() {
  MR_CHECK(in_step_, "end_step() without begin_step()");
  in_step_ = false;
  turn_to(Phase::rest);
  for (Accumulated* sums : {&window_, &total_}) sums->add_step(since_ns_ - step_begin_ns_);
}

double Timeline::Summary::share(Phase phase) const noexcept {
  const double all = loop();
  if (all <= 0 || phase == Phase::startup || phase == Phase::trials) return 0;
  return of(phase) / all;
}

Timeline::Summary Timeline::window() const { return summary(window_); }

void Timeline::reset_window() {
  turn_to(phase_);
  window_ = Accumulated{};
}

Timeline::Summary Timeline::total() const { return summary(total_); }

void Timeline::Accumulated::add_step(std::int64_t nanoseconds) {
  ++steps;
  step_ns += nanoseconds;
  const float ms = static_cast<float>(nanoseconds) * 1e-6F;
  if (step_ms.size() < kReservoir) {
    step_ms.push_back(ms);
    return;
  }
  // Vitter's algorithm R: every step so far is in the sample with the same probability.
  const std::uint64_t slot = Philox(static_cast<std::uint64_t>(steps)).below(static_cast<std::uint64_t>(steps));
  if (slot < kReservoir) step_ms[slot] = ms;
}

Timeline::Summary Timeline::summary(const Accumulated& of) const {
  Summary result;
  result.steps = of.steps;
  result.step_seconds = static_cast<double>(of.step_ns) * 1e-9;
  std::vector<float> sorted = of.step_ms;
  result.step_ms_p50 = quantile(sorted, 0.50);
  result.step_ms_p95 = quantile(sorted, 0.95);
  std::array<std::int64_t, kPhases> all = of.phase_ns;
  all[index_of(phase_)] += clock_() - since_ns_;
  std::int64_t wall_ns = 0;
  for (std::size_t i = 0; i < kPhases; ++i) {
    result.seconds[i] = static_cast<double>(all[i]) * 1e-9;
    wall_ns += all[i];
  }
  result.wall = static_cast<double>(wall_ns) * 1e-9;
  return result;
}

}  // namespace millrace::telemetry
