#include "millrace/train/watch/memory_watch.h"

#include <algorithm>
#include <cmath>

#include "millrace/base/format.h"

namespace millrace {
namespace {

constexpr double kMostOfIt = 0.5;  // an owner is named if its growth is at least this share of the rise

std::string bytes(std::uint64_t count) { return human_bytes(static_cast<double>(count)); }

std::string share_text(const MemoryWatch::Reading& now) {
  const double share = static_cast<double>(now.used) / static_cast<double>(now.room);
  return "step " + with_commas(now.step) + ": " +
         (now.on_gpu ? "tensors and the memory reserved for them take " : "the process holds ") + bytes(now.used) + ", " +
         percent(share) + " of the " + bytes(now.room) + " that " + (now.on_gpu ? "the GPU has" : "it may have") +
         ": lower data.batch_size, or set memory.recompute=all or memory.micro_batches=2" +
         (now.on_gpu ? "" : "; readers and their batches take less memory with data.workers=1 and data.prefetch=1");
}

std::string rise_text(int rises, const MemoryWatch::Reading& begin, const MemoryWatch::Reading& now) {
  return "tensors hold more at each of the last " + std::to_string(rises) + " log lines: " + bytes(begin.tensors) +
         " after step " + with_commas(begin.step) + ", " + bytes(now.tensors) + " after step " + with_commas(now.step);
}

// A text that names the owner of most of the growth, or says that no known owner grew that much; "" if owners are not known.
std::string owner_text(const OwnedMemory& before, const OwnedMemory& now, std::uint64_t risen) {
  if (now.empty()) return "";
  for (const auto& [owner, held] : now) {
    const auto then = before.find(owner);
    const std::uint64_t had = then == before.end() ? 0 : then->second;
    if (held > had && static_cast<double>(held - had) >= kMostOfIt * static_cast<double>(risen))
      return ", most of it in the " + owner;
  }
  std::string owners;
  for (const auto& [owner, held] : now) owners += (owners.empty() ? "" : ", ") + owner;
  return ", and no known owner (" + owners + ") accounts for most of the rise";
}

double steps_until_full(const MemoryWatch::Reading& begin, const MemoryWatch::Reading& now) {
  const double free = static_cast<double>(now.room - std::min(now.room, now.used));
  const double a_step =
      static_cast<double>(now.tensors - begin.tensors) / static_cast<double>(std::max<std::int64_t>(now.step - begin.step, 1));
  return free / a_step;
}

bool is_warm(const MemoryWatch::Reading& now) {
  const double whole = static_cast<double>(now.passed + now.left);
  return static_cast<double>(now.passed) >=
         std::min(MemoryWatch::kPassPart * whole, static_cast<double>(MemoryWatch::kPassSteps));
}

}  // namespace

void MemoryWatch::begin(const Reading& now) {
  rises_ = still_ = 0;
  begin_ = now;
  most_ = now.tensors;
  rising_.clear();
}

bool MemoryWatch::has_risen(const Reading& now) const {
  if (rises_ < kRises) return false;
  const std::uint64_t risen = now.tensors - begin_.tensors;
  if (risen < kRiseBytes || static_cast<double>(risen) < kRiseShare * static_cast<double>(begin_.tensors)) return false;
  return now.left == 0 || (now.room > 0 && steps_until_full(begin_, now) < static_cast<double>(now.left));
}

bool MemoryWatch::is_over(const Reading& now) const {
  return still_ >= kRises || now.tensors <= begin_.tensors + (most_ - begin_.tensors) / 2;
}

std::vector<std::string> MemoryWatch::look(const Reading& now, const std::function<OwnedMemory()>& owned) {
  std::vector<std::string> warnings;
  if (!told_share_ && now.room > 0 && static_cast<double>(now.used) > kShare * static_cast<double>(now.room)) {
    told_share_ = true;
    warnings.push_back(share_text(now));
  }
  if (now.left > 0 && !is_warm(now)) return warnings;
  // when the first pass ends, the count of rises starts again, because the caches are full from then on
  const bool another_pass = !has_last_ || (last_.left > 0) != (now.left > 0);
  const bool rises = has_last_ && now.tensors > last_.tensors;
  if (another_pass || (rising_.empty() && !rises)) {
    begin(now);
  } else if (rises) {
    ++rises_;
    still_ = 0;
    if (rises_ == 1 && owned) owned_ = owned();
  } else {
    ++still_;
  }
  most_ = std::max(most_, now.tensors);
  last_ = now;
  has_last_ = true;
  if (!rising_.empty() && is_over(now)) begin(now);
  if (!rising_.empty() || !has_risen(now)) return warnings;
  rising_ = rise_text(rises_, begin_, now);
  if (owned) rising_ += owner_text(owned_, owned(), now.tensors - begin_.tensors);
  if (now.left > 0) {
    rising_ += "; at that pace memory is used up in about " +
               with_commas(static_cast<std::int64_t>(std::ceil(steps_until_full(begin_, now)))) + " steps";
  }
  if (!told_rise_) {
    warnings.push_back(rising_ +
                       ": something keeps tensors from step to step, such as a loss that is summed with its graph; detach() what "
                       "the recipe keeps");
  }
  told_rise_ = true;
  return warnings;
}

}  // namespace millrace
