#include "millrace/data/loader/detail/tuner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "millrace/base/format.h"

namespace millrace::data::detail {
namespace {

constexpr double kTolerated = 0.02;       // nothing is changed if the consumer waits for less than this share of its time
constexpr double kWorse = 0.85;           // a new rate below this share of the previous rate is clearly worse, not noise
constexpr double kBetter = 1.05;          // the least gain that justifies more batches ahead, which cost memory
constexpr double kBusy = 0.9;             // a reader that spends this share of its time reading is not blocked by anything
constexpr double kWorthAThread = 500e-6;  // seconds per batch; if the consumer waits longer, the first reader is added
constexpr std::uint64_t kEnoughBatches = 4;
constexpr double kEnoughSlowReads = 3;  // an interval is long enough if it lasts this many times the longest read
constexpr double kComputes = 0.5;       // readers that use a CPU for more than this share of their time slow each other down

double share_of_cpu(const Measured& measured) {
  return measured.read_seconds <= 0 ? 1.0 : std::clamp(measured.cpu_seconds / measured.read_seconds, 0.01, 1.0);
}

std::string counted(int count) { return std::to_string(count) + (count == 1 ? " reader" : " readers"); }

}  // namespace

int Tuner::readers_for(int now, const Measured& measured) const {
  if (!limits_.chooses_readers || measured.read_seconds <= 0) return now;
  if (now == 0) return measured.waited / static_cast<double>(measured.batches) > kWorthAThread ? 1 : 0;
  const double consuming = std::max(measured.seconds - measured.waited, measured.seconds * 1e-3);
  const double needed = std::ceil(1.2 * measured.read_seconds / consuming);
  const double allowed = std::floor(static_cast<double>(limits_.cores) / share_of_cpu(measured) + 0.25);
  const double most = std::min({needed, allowed, static_cast<double>(limits_.max_readers), 2.0 * now});
  return std::max(now, static_cast<int>(most));
}

std::size_t Tuner::ahead_for(const Stages& now, int readers, const Measured& measured) const {
  const double batch_seconds = measured.seconds / static_cast<double>(measured.batches);
  std::size_t wanted = static_cast<std::size_t>(readers) / limits_.tickets + 2;
  // Adds batches ahead only if readers have pauses. Readers that are always busy are not blocked by a slow sample, so more
  // batches ahead would not help.
  if (measured.read_seconds < kBusy * now.readers * measured.seconds) {
    wanted = std::max(wanted, static_cast<std::size_t>(std::ceil(std::min(measured.slowest_read / batch_seconds, 1e6))) + 1);
  }
  return std::clamp(std::min(wanted, 4 * now.ahead), now.ahead, std::max(now.ahead, limits_.max_ahead));
}

bool Tuner::enough(const Measured& measured) noexcept {
  return measured.batches >= kEnoughBatches && measured.seconds > kEnoughSlowReads * measured.slowest_read;
}

std::optional<Change> Tuner::look(const Stages& now, const Measured& measured) {
  if (measured.batches == 0 || measured.seconds <= 0) return std::nullopt;
  const double rate = static_cast<double>(measured.batches) / measured.seconds;
  const double waiting = measured.waited / measured.seconds;
  if (rate_before_ > 0 && rate < kWorse * rate_before_ && waiting > kTolerated && now.readers > before_.readers &&
      before_.readers > 0 && share_of_cpu(measured) > kComputes) {
    Change back{{before_.readers, now.ahead},
                counted(before_.readers) + " again, because with " + std::to_string(now.readers) + " the rate was " +
                    percent(rate / rate_before_) + " of the earlier rate"};
    rate_before_ = 0;
    settled_ = true;
    return back;
  }
  const double before = std::exchange(rate_before_, 0.0);
  if (waiting < kTolerated) return std::nullopt;
  if (before > 0 && rate < kBetter * before && now.readers == before_.readers && now.ahead > before_.ahead) {
    Change back{before_, std::to_string(before_.ahead) + " batches ahead again, because with " + std::to_string(now.ahead) +
                             " the rate was " + percent(rate / before) + " of the earlier rate"};
    ahead_settled_ = true;
    return back;
  }
  Stages next = now;
  if (!settled_) next.readers = readers_for(now.readers, measured);
  if (next.readers > 0 && !ahead_settled_) next.ahead = ahead_for(now, next.readers, measured);
  if (next == now) return std::nullopt;
  before_ = now;
  rate_before_ = rate;
  std::string reason = counted(next.readers) + ", " + std::to_string(next.ahead) + " batches ahead: the step waited " +
                       percent(waiting) + " of the time";
  if (next.readers != now.readers && now.readers > 0) {
    reason += "; readers sleep " + percent(1 - share_of_cpu(measured)) + " of their time";
  }
  return Change{next, std::move(reason)};
}

}  // namespace millrace::data::detail
