#include "millrace/train/memory_watch.h"

#include "millrace/base/format.h"

namespace millrace {
namespace {

std::string bytes(std::uint64_t count) { return human_bytes(static_cast<double>(count)); }

std::string share_text(const MemoryReading& now) {
  const double share = static_cast<double>(now.used) / static_cast<double>(now.room);
  return "step " + with_commas(now.step) + ": " +
         (now.on_gpu ? "tensors and what is kept for them take " : "the process holds ") + bytes(now.used) + ", " +
         percent(share) + " of the " + bytes(now.room) + " that " + (now.on_gpu ? "the GPU has" : "it may have") +
         ": lower data.batch_size, or set memory.recompute=all or memory.micro_batches=2";
}

std::string rise_text(int rises, const MemoryReading& begin, const MemoryReading& now) {
  return "tensors hold more at each of the last " + std::to_string(rises) + " log lines: " + bytes(begin.tensors) +
         " after step " + with_commas(begin.step) + ", " + bytes(now.tensors) + " after step " + with_commas(now.step);
}

}  // namespace

std::vector<std::string> MemoryWatch::look(const MemoryReading& now) {
  std::vector<std::string> warnings;
  if (!told_share_ && now.room > 0 && static_cast<double>(now.used) > kShare * static_cast<double>(now.room)) {
    told_share_ = true;
    warnings.push_back(share_text(now));
  }
  if (!rising_.empty() || now.first_epoch) return warnings;
  if (!has_last_ || now.tensors <= last_.tensors) {
    rises_ = 0;
    begin_ = now;
  } else {
    ++rises_;
  }
  last_ = now;
  has_last_ = true;
  const std::uint64_t risen = now.tensors - begin_.tensors;
  if (rises_ >= kRises && risen >= kRiseBytes && static_cast<double>(risen) >= kRiseShare * static_cast<double>(begin_.tensors)) {
    rising_ = rise_text(rises_, begin_, now);
    warnings.push_back(rising_ +
                       ": something keeps tensors from step to step, such as a loss that is summed with its graph; detach() what "
                       "the recipe keeps");
  }
  return warnings;
}

}  // namespace millrace
