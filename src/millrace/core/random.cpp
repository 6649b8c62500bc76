#include "millrace/core/random.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>
#include <utility>

#include "millrace/base/philox.h"

namespace millrace {

namespace {
thread_local RandomScope* innermost = nullptr;
constexpr std::uint64_t kForward = 0x666f7277;  // tells these keys from those of the loader's order and of sources

std::int64_t first_row_of(const Group& group) noexcept { return group.positions.empty() ? 0 : group.positions.front(); }
}  // namespace

RandomScope::RandomScope(std::uint64_t seed, const Batch& batch) noexcept
    : RandomScope(Place{.seed = seed, .epoch = batch.epoch()}) {
  for (const Group& group : batch.groups()) place_.first_row += first_row_of(group);
  place_.rows = batch.rows();
}

RandomScope::RandomScope(const Place& place) noexcept : place_(place), outer_(innermost) { innermost = this; }

RandomScope::~RandomScope() { innermost = outer_; }

RandomSite RandomScope::next_site(std::int64_t elements) {
  if (RandomScope* scope = innermost) {
    Place& here = scope->place_;
    const std::int64_t first = here.rows > 0 && elements % here.rows == 0 ? elements / here.rows * here.first_row : 0;
    return {make_key(here.seed, kForward, here.epoch, here.site++), first};
  }
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::scoped_lock lock(generator.mutex());
  return {generator.get<at::CPUGeneratorImpl>()->random64(), 0};
}

RowScope::RowScope(const Group& group) noexcept : scope_(innermost) {
  if (scope_ == nullptr) return;
  first_row_ = std::exchange(scope_->place_.first_row, first_row_of(group));
  rows_ = std::exchange(scope_->place_.rows, group.rows());
}

RowScope::~RowScope() {
  if (scope_ == nullptr) return;
  scope_->place_.first_row = first_row_;
  scope_->place_.rows = rows_;
}

std::optional<RandomScope::Place> RandomScope::place() noexcept {
  return innermost == nullptr ? std::nullopt : std::optional(innermost->place_);
}

}  // namespace millrace
