#include "millrace/doctor/clock_use.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "millrace/base/median.h"

namespace millrace::doctor {
namespace {

constexpr double kMinute = 60;
constexpr std::ptrdiff_t kLeastReadings = 3;
constexpr double kBusyCores = 0.5;  // cores; a process that uses fewer is idle, so the clock of its core says nothing
constexpr double kLike = 0.25;      // two loads count as equal if their numbers of busy cores differ by at most this share of
                                    // the first minute's
constexpr int kManyUnlike = 3;

template <class Iterator>
bool is_enough(Iterator begin, Iterator end) {
  double seconds = 0;
  for (Iterator each = begin; each != end; ++each) seconds += each->seconds;
  return seconds >= kMinute && end - begin >= kLeastReadings;
}

template <class Readings, class Member>
double median_of(const Readings& readings, Member member) {
  std::vector<double> values;
  values.reserve(readings.size());
  for (const auto& reading : readings) values.push_back(reading.*member);
  return median(std::move(values));
}

}  // namespace

void ClockUse::begin(const Reading& reading) {
  if (reading.cores < kBusyCores) return;
  first_.push_back(reading);
  seconds_ += reading.seconds;
  if (!is_enough(first_.begin(), first_.end())) return;
  before_ = Reading{.seconds = seconds_, .mhz = median_of(first_, &Reading::mhz), .cores = median_of(first_, &Reading::cores)};
  first_.clear();
}

void ClockUse::add(const Sampler::MachineReading& reading) {
  if (!reading.mhz || *reading.mhz <= 0 || reading.seconds <= 0) return;
  const Reading now{.seconds = reading.seconds, .mhz = *reading.mhz, .cores = reading.cpu_own};
  if (!before_) return begin(now);
  if (std::abs(now.cores - before_->cores) > kLike * before_->cores) {
    if (++unlike_ >= kManyUnlike) latest_.clear();
    return;
  }
  unlike_ = 0;
  latest_.push_back(now);
  while (is_enough(latest_.begin() + 1, latest_.end())) latest_.pop_front();
  seconds_ += now.seconds;
  lost_seconds_ += now.seconds * std::max(0.0, 1 - now.mhz / before_->mhz);
}

std::optional<Evidence::CpuClock> ClockUse::latest() const {
  if (!before_ || !is_enough(latest_.begin(), latest_.end())) return std::nullopt;
  const double now = median_of(latest_, &Reading::mhz);
  return Evidence::CpuClock{.before_mhz = before_->mhz, .now_mhz = now, .lost = std::max(0.0, 1 - now / before_->mhz)};
}

std::optional<Evidence::CpuClock> ClockUse::of_the_run() const {
  std::optional<Evidence::CpuClock> clock = latest();
  if (clock) clock->lost = lost_seconds_ / seconds_;
  return clock;
}

}  // namespace millrace::doctor
