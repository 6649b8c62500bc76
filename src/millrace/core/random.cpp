#include "millrace/core/random.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>
#include <utility>

#include "millrace/base/philox.h"

namespace millrace {

namespace {
thread_local RandomScope* innermost = nullptr;
constexpr std::uint64_t kForward = 0x666f7277;  // gives forward passes other keys than the loader and the sources

}  // namespace

std::vector<IndexRun> runs_of(std::span<const std::int64_t> positions) {
  std::vector<IndexRun> runs;
  for (const std::int64_t position : positions) {
    if (!runs.empty() && runs.back().first + runs.back().count == position) {
      ++runs.back().count;
    } else {
      runs.push_back({position, 1});
    }
  }
  return runs;
}

std::vector<IndexRun> rows_of(const Batch& batch) {
  if (batch.groups().size() == 1) return runs_of(batch.groups().front().positions);
  IndexRun all{0, batch.rows()};
  for (const Group& group : batch.groups()) all.first += group.positions.empty() ? 0 : group.positions.front();
  return {all};
}

RandomScope::RandomScope(std::uint64_t seed, const Batch& batch)
    : RandomScope(Position{.seed = seed, .epoch = batch.epoch(), .site = 0, .rows = rows_of(batch)}) {}

RandomScope::RandomScope(Position position) noexcept : position_(std::move(position)), outer_(innermost) { innermost = this; }

RandomScope::~RandomScope() { innermost = outer_; }

RandomScope::Site RandomScope::site_at(const Position& position, std::int64_t elements) {
  RandomScope::Site site{.key = make_key(position.seed, kForward, position.epoch, position.site)};
  std::int64_t rows = 0;
  for (const IndexRun& run : position.rows) rows += run.count;
  if (rows == 0 || elements % rows != 0) return site;
  const std::int64_t width = elements / rows;
  site.first = width * position.rows.front().first;
  if (position.rows.size() == 1) return site;
  for (const IndexRun& run : position.rows) site.runs.push_back({width * run.first, width * run.count});
  return site;
}

RandomScope::Site RandomScope::next_site(std::int64_t elements) {
  if (RandomScope* scope = innermost) {
    Position& here = scope->position_;
    RandomScope::Site site = site_at(here, elements);
    if (here.recorder != nullptr) site.on_device = here.recorder->place_of(here, elements);
    ++here.site;
    return site;
  }
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::scoped_lock lock(generator.mutex());
  return {generator.get<at::CPUGeneratorImpl>()->random64(), 0, {}};
}

RowScope::RowScope(std::span<const std::int64_t> positions) : scope_(innermost) {
  if (scope_ != nullptr) rows_ = std::exchange(scope_->position_.rows, runs_of(positions));
}

RowScope::~RowScope() {
  if (scope_ != nullptr) scope_->position_.rows = std::move(rows_);
}

bool RandomScope::is_recorded() noexcept { return innermost != nullptr && innermost->position_.recorder != nullptr; }

std::optional<RandomScope::Position> RandomScope::position() {
  return innermost == nullptr ? std::nullopt : std::optional(innermost->position_);
}

}  // namespace millrace
