#include "millrace/train/step/detail/model_blocks.h"

#include <algorithm>

#include "millrace/base/error.h"
#include "millrace/base/format.h"

namespace millrace {
namespace {

constexpr std::int64_t kTimedEvery = 8, kTimedFrom = 4;  // every eighth step is timed, after a warm-up of four steps

}  // namespace

bool ModelBlocks::recompute_all() {
  if (std::ranges::none_of(names_, [this](const std::string& block) { return !recompute_.takes(block); })) return false;
  recompute_ = memory::Recompute({"all"});
  return true;
}

// Throws ConfigError for a name that matches no block, so that a typing error is found before the first update.
void ModelBlocks::check(const memory::Recompute& recompute) const {
  const std::vector<std::string> lost = recompute.unmatched(names_);
  if (lost.empty()) return;
  throw ConfigError({"the model has no block " + quoted(lost.front()), "memory.recompute",
                     names_.empty() ? "its recipe names no blocks: leave memory.recompute at auto or none"
                                    : "its blocks are " + joined(names_, ", ")});
}

memory::BlockClock* ModelBlocks::clock_of(std::int64_t step) {
  return timed_ && !trying_ && step % kTimedEvery == kTimedFrom ? &clock_ : nullptr;
}

void ModelBlocks::enter(std::optional<memory::BlockScope>& scope) {
  scope.emplace(recompute_, device_, watcher_, known_ ? nullptr : &names_);
}

void ModelBlocks::end_pass() {
  if (!std::exchange(known_, true) && !trying_) check(recompute_);
}

void ModelBlocks::end_trial() noexcept {
  watcher_ = nullptr;
  trying_ = false;
}

}  // namespace millrace
