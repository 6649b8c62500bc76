#include "millrace/telemetry/spans.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "millrace/base/clock.h"
#include "millrace/base/error.h"
#include "millrace/base/philox.h"
#include "millrace/telemetry/span_watch.h"

namespace millrace::telemetry {
namespace {

constexpr std::size_t kReservoir = 4096;

constinit thread_local SpanWatch* span_watch = nullptr;

std::size_t index_of(Phase phase) noexcept { return static_cast<std::size_t>(phase); }

// Nearest rank: the smallest value with at least `fraction` of the values at or below it.
double quantile(std::vector<float>& values, double fraction) {
  if (values.empty()) return 0;
  const auto rank = static_cast<std::size_t>(std::ceil(fraction * static_cast<double>(values.size())));
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(std::max<std::size_t>(rank, 1) - 1);
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

// For people, where a name is one for logs.
const char* word_of(Phase phase) noexcept {
  constexpr std::array<const char*, kPhases> kWords = {
      "waiting for data", "preparing the batch", "forward",  "backward", "optimiser update",
      "log line",         "validation",          "snapshot", "step"};
  return kWords[index_of(phase)];
}

}  // namespace

std::string_view name_of(Phase phase) noexcept {
  constexpr std::array<std::string_view, kPhases> kNames = {"data_wait", "prepare",  "forward",  "backward", "optimizer",
                                                            "log",       "validate", "snapshot", "other"};
  return kNames[index_of(phase)];
}

Span::Span(Timeline& timeline, Phase phase) noexcept
    : timeline_(&timeline), phase_(phase), begin_ns_(steady_nanoseconds()), doing_(Doing::Level::phase, word_of(phase)) {
  if (span_watch != nullptr) span_watch->begins(phase);
}

Span::~Span() {
  if (span_watch != nullptr) span_watch->ends();
  timeline_->add(phase_, steady_nanoseconds() - begin_ns_);
}

void watch_spans(SpanWatch* watch) noexcept { span_watch = watch; }

void Timeline::begin_step() noexcept {
  current_.fill(0);
  step_begin_ns_ = steady_nanoseconds();
  in_step_ = true;
}

void Timeline::end_step() {
  MR_CHECK(in_step_, "end_step() without begin_step()");
  in_step_ = false;
  const std::int64_t known = std::accumulate(current_.begin(), current_.end(), std::int64_t{0});
  // Spans that nest count twice: the step is then as long as they say, so that shares still sum to 1.
  const std::int64_t step_ns = std::max(steady_nanoseconds() - step_begin_ns_, known);
  current_[index_of(Phase::other)] += step_ns - known;
  window_.add(step_ns, current_);
  total_.add(step_ns, current_);
}

void Timeline::drop_step() noexcept {
  in_step_ = false;
  for (std::size_t i = 0; i < kPhases; ++i) add(static_cast<Phase>(i), current_[i]);
}

void Timeline::add(Phase phase, std::int64_t nanoseconds) noexcept {
  if (in_step_) {
    current_[index_of(phase)] += nanoseconds;
    return;
  }
  window_.add_between(phase, nanoseconds);
  total_.add_between(phase, nanoseconds);
}

Timeline::Summary Timeline::window() const { return window_.summary(); }

void Timeline::reset_window() { window_ = Accumulated{}; }

Timeline::Summary Timeline::total() const { return total_.summary(); }

void Timeline::Accumulated::add_between(Phase phase, std::int64_t nanoseconds) noexcept {
  between_ns += nanoseconds;
  phase_ns[index_of(phase)] += nanoseconds;
}

void Timeline::Accumulated::add(std::int64_t nanoseconds, const std::array<std::int64_t, kPhases>& phases) {
  ++steps;
  step_ns += nanoseconds;
  for (std::size_t i = 0; i < kPhases; ++i) phase_ns[i] += phases[i];
  const float ms = static_cast<float>(nanoseconds) * 1e-6F;
  if (step_ms.size() < kReservoir) {
    step_ms.push_back(ms);
    return;
  }
  // Vitter's algorithm R: each step so far has the same chance to be in the sample.
  const std::uint64_t slot = Philox(static_cast<std::uint64_t>(steps)).below(static_cast<std::uint64_t>(steps));
  if (slot < kReservoir) step_ms[slot] = ms;
}

Timeline::Summary Timeline::Accumulated::summary() const {
  Summary result;
  result.steps = steps;
  result.seconds = static_cast<double>(step_ns) * 1e-9;
  std::vector<float> sorted = step_ms;
  result.step_ms_p50 = quantile(sorted, 0.50);
  result.step_ms_p95 = quantile(sorted, 0.95);
  const std::int64_t all_ns = step_ns + between_ns;
  for (std::size_t i = 0; i < kPhases && all_ns > 0; ++i) {
    result.share[i] = static_cast<double>(phase_ns[i]) / static_cast<double>(all_ns);
  }
  return result;
}

}  // namespace millrace::telemetry
