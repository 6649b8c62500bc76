#include "millrace/train/step/device_times.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "millrace/base/error.h"

namespace millrace {
namespace {

using telemetry::Phase;

constexpr std::size_t kKeptSteps = 4096;
constexpr std::array kOfSteps = {Phase::data_wait, Phase::copy,      Phase::prepare, Phase::forward, Phase::backward,
                                 Phase::reduction, Phase::optimizer, Phase::metrics, Phase::rest};

std::size_t index_of(Phase phase) { return static_cast<std::size_t>(phase); }

// The quantile by nearest rank, as Timeline computes it.
double quantile(std::vector<float> values, double part) {
  const auto rank = static_cast<std::size_t>(std::ceil(part * static_cast<double>(values.size())));
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(std::max<std::size_t>(rank, 1) - 1);
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

void set_quantiles(telemetry::Timeline::Summary& times, const std::vector<float>& ms) {
  times.step_ms_p50 = quantile(ms, 0.50);
  times.step_ms_p95 = quantile(ms, 0.95);
}

}  // namespace

void DeviceTimes::add(std::span<const Mark> marks, std::span<const double> between_ms) {
  MR_CHECK(marks.empty() || between_ms.size() + 1 == marks.size(), "there must be a time from each mark to the next");
  double step_ms = 0;
  for (std::size_t i = 0; i + 1 < marks.size(); ++i) {
    if (marks[i].ends_step) continue;
    fresh_[index_of(marks[i].phase)] += between_ms[i] * 1e-3;
    step_ms += between_ms[i];
    if (marks[i].phase != Phase::data_wait)
      sums_.host_seconds += static_cast<double>(marks[i + 1].host_ns - marks[i].host_ns) * 1e-9;
    if (!marks[i + 1].ends_step) continue;
    ++sums_.steps;
    sums_.device_seconds += step_ms * 1e-3;
    fresh_ms_.push_back(static_cast<float>(step_ms));
    step_ms = 0;
  }
}

void DeviceTimes::waited(double seconds) noexcept {
  ++sums_.waits;
  sums_.waited_seconds += seconds;
}

void DeviceTimes::book(telemetry::Timeline::Summary& stretch) {
  const Seconds device = std::exchange(fresh_, {});
  const double seen = std::accumulate(device.begin(), device.end(), 0.0);
  if (fresh_ms_.empty() || seen <= 0) return;
  set_quantiles(stretch, fresh_ms_);
  if (step_ms_.size() + fresh_ms_.size() > kKeptSteps) step_ms_.clear();
  step_ms_.insert(step_ms_.end(), fresh_ms_.begin(), fresh_ms_.end());
  fresh_ms_.clear();
  double all = 0;
  for (const Phase phase : kOfSteps) all += stretch.of(phase);
  for (const Phase phase : kOfSteps) {
    const std::size_t i = index_of(phase);
    const double now = all * device[i] / seen;
    moved_[i] += now - stretch.seconds[i];
    stretch.seconds[i] = now;
  }
}

void DeviceTimes::correct(telemetry::Timeline::Summary& total) const {
  for (std::size_t i = 0; i < telemetry::kPhases; ++i) total.seconds[i] += moved_[i];
  if (!step_ms_.empty()) set_quantiles(total, step_ms_);
}

}  // namespace millrace
