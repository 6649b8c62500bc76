#include "millrace/data/loader/detail/readers.h"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "millrace/base/clock.h"
#include "millrace/base/format.h"
#include "millrace/data/loader/detail/thread_usage.h"

namespace millrace::data::detail {
namespace {

std::string time_text(double seconds) {
  return seconds < 1e-3 ? fixed(seconds * 1e6, 0) + " us" : fixed(seconds * 1e3, 1) + " ms";
}

struct Probe {
  double batch_seconds = 0;
  double cpu_share = 1;  // share of batch_seconds in which the thread used a core; it slept for the rest
};

// Measures the time of a batch in the calling thread. Returns nullopt if the batch has a bad sample. Of a large batch only a
// part is read. Each pass reads another batch, because a cache in front of the source would make the same batch look cheap.
std::optional<Probe> probe(BatchWork& work) {
  constexpr double kLimit = 0.02;
  const std::unique_ptr<BatchSlot> slot = work.make_slot();
  Probe best;
  // Makes up to three passes, because the first one also pays for page faults and cold caches. One pass is enough if it takes
  // more than a millisecond.
  for (std::uint64_t pass = 0; pass < 3; ++pass) {
    work.begin(*slot, pass);
    const double cpu_began = this_thread_cpu_seconds();
    const double began = steady_seconds();
    std::uint64_t ticket = 0;
    double passed = 0;
    while (ticket < work.tickets() && passed < kLimit) {
      work.run(*slot, pass, ticket++, -1);
      passed = steady_seconds() - began;
    }
    if (!slot->bad.empty()) return std::nullopt;
    const double whole = passed * static_cast<double>(work.tickets()) / static_cast<double>(ticket);
    if (pass == 0 || whole < best.batch_seconds) {
      best = {whole, passed > 0 ? std::min(1.0, (this_thread_cpu_seconds() - cpu_began) / passed) : 1.0};
    }
    if (passed > 1e-3) break;
  }
  return best;
}

}  // namespace

int usable_cores() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

Chosen<int> choose_readers(BatchWork& work, int wanted, int cores) {
  if (wanted >= 0) return {wanted, std::to_string(wanted) + " readers: as configured"};
  // In seconds. If reading a batch takes less time than this, a hand-over between threads would cost a good part of that time,
  // and the step takes longer anyway.
  constexpr double kCheap = 200e-6;
  constexpr double kSleepy = 0.3;
  const std::optional<Probe> seen = probe(work);
  if (seen && seen->batch_seconds < kCheap) {
    return {0, "no readers: a batch is read in " + time_text(seen->batch_seconds) + " in the calling thread"};
  }
  const bool waits = (seen && seen->cpu_share < kSleepy) || std::any_of(work.datasets().begin(), work.datasets().end(),
                                                                        [](const Dataset& d) { return d.source->waits(); });
  const int readers = waits ? std::clamp(2 * cores, 4, 8) : std::clamp(cores - 2, 1, 4);
  std::string reason = std::to_string(readers) + (readers == 1 ? " reader: " : " readers: ");
  reason +=
      seen ? "a batch takes " + time_text(seen->batch_seconds) + " to read" : "the first batch holds a sample that can't be read";
  return {readers, reason + (waits ? ", mostly waiting" : "") + "; " + std::to_string(cores) + " cores"};
}

}  // namespace millrace::data::detail
