#include "millrace/memory/planner.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>
#include <utility>

#include "millrace/base/error.h"

namespace millrace::memory {
namespace {

using Kind = StepProfile::Segment::Kind;

std::uint64_t growth(const StepProfile::Segment& segment) {
  return segment.end_bytes > segment.begin_bytes ? segment.end_bytes - segment.begin_bytes : 0;
}

std::uint64_t minus(std::uint64_t a, std::uint64_t b) { return a > b ? a - b : 0; }

// Returns the profile of a step that keeps everything, derived from `profile`, a step that recomputes every block.
StepProfile as_if_kept(StepProfile profile) {
  std::uint64_t alive = 0;
  for (StepProfile::Segment& segment : profile.segments) {
    const std::uint64_t own = segment.block < 0 ? 0 : profile.second_pass_bytes[static_cast<std::size_t>(segment.block)];
    if (segment.kind == Kind::backward) alive = minus(alive, own);
    segment.peak_bytes += alive + (segment.kind == Kind::forward ? own : 0);
    segment.begin_bytes += alive;
    if (segment.kind == Kind::forward) alive += own;
    segment.end_bytes += alive;
  }
  return profile;
}

}  // namespace

Planner::Planner(StepProfile recomputed, std::optional<StepProfile> plain)
    : recomputed_(std::move(recomputed)), measured_plain_(plain.has_value()) {
  plain_ = plain ? std::move(*plain) : as_if_kept(recomputed_);
  const auto same = [](const StepProfile::Segment& a, const StepProfile::Segment& b) {
    return a.kind == b.kind && a.block == b.block;
  };
  MR_CHECK(plain_.blocks == recomputed_.blocks && std::ranges::equal(plain_.segments, recomputed_.segments, same),
           "the step ran different blocks when its blocks were recomputed");
  saved_.resize(plain_.blocks.size());
  std::vector<double> ms(plain_.blocks.size());
  for (std::size_t i = 0; i < plain_.segments.size(); ++i) {
    const StepProfile::Segment& kept = plain_.segments[i];
    if (kept.kind != Kind::forward) continue;
    const auto block = static_cast<std::size_t>(kept.block);
    saved_[block] = minus(growth(kept), growth(recomputed_.segments[i]));
    // The first of two trials runs on cold memory, so the shortest time counts.
    ms[block] = std::min({kept.ms, recomputed_.segments[i].ms,
                          recomputed_.second_pass_ms[block] > 0 ? recomputed_.second_pass_ms[block] : kept.ms});
  }
  for (std::size_t i = 0; i < saved_.size(); ++i) {
    auto cost = std::ranges::find(costs_, plain_.blocks[i], &Planner::BlockCost::name);
    if (cost == costs_.end()) cost = costs_.insert(costs_.end(), Planner::BlockCost{plain_.blocks[i]});
    cost->saved_bytes += saved_[i];
    cost->ms += ms[i];
  }
}

Planner::Peak Planner::peak(const std::vector<std::string>& blocks) const {
  const std::set<std::string_view> again(blocks.begin(), blocks.end());
  const auto is_again = [&](std::size_t block) { return again.contains(plain_.blocks[block]); };
  std::uint64_t most = 0;
  std::size_t at = 0;
  std::uint64_t gone = 0;     // saved bytes of recomputed blocks whose first pass is over and whose second pass has not begun
  std::uint64_t present = 0;  // saved bytes of the blocks that are not recomputed
  for (std::size_t i = 0; i < plain_.segments.size(); ++i) {
    const StepProfile::Segment& segment = plain_.segments[i];
    const auto block = static_cast<std::size_t>(std::max<std::int64_t>(segment.block, 0));
    const bool own = segment.kind != Kind::gap && is_again(block);
    if (segment.kind == Kind::backward) {
      std::uint64_t& sum = is_again(block) ? gone : present;
      sum = minus(sum, saved_[block]);
    }
    const std::uint64_t here = own ? recomputed_.segments[i].peak_bytes + present : minus(segment.peak_bytes, gone);
    if (here > most) {
      most = here;
      at = i;
    }
    if (segment.kind == Kind::forward) (is_again(block) ? gone : present) += saved_[block];
  }
  return {most, plain_.blocks.empty() ? "" : plain_.where(plain_.segments[at])};
}

Planner::RecomputePlan Planner::choose(std::uint64_t bytes) const {
  std::vector<Planner::BlockCost> order = costs_;
  std::ranges::stable_sort(order, [](const Planner::BlockCost& a, const Planner::BlockCost& b) {
    return static_cast<double>(a.saved_bytes) * b.ms > static_cast<double>(b.saved_bytes) * a.ms;
  });
  std::vector<std::string> chosen;
  for (const Planner::BlockCost& cost : order) {
    if (predict(chosen) <= bytes) break;
    if (cost.saved_bytes > 0) chosen.push_back(cost.name);
  }
  const bool fits = predict(chosen) <= bytes;
  for (std::size_t i = chosen.size(); fits && i-- > 0;) {
    std::vector<std::string> fewer = chosen;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    if (predict(fewer) <= bytes) chosen = std::move(fewer);
  }
  Planner::Peak at = peak(chosen);
  Planner::RecomputePlan plan{
      .blocks = {}, .peak_in = std::move(at.where), .predicted_bytes = at.bytes, .extra_ms = 0, .fits = fits};
  for (const Planner::BlockCost& cost : costs_) {  // costs_ is in the model's order
    if (std::ranges::find(chosen, cost.name) == chosen.end()) continue;
    plan.blocks.push_back(cost.name);
    plan.extra_ms += cost.ms;
  }
  return plan;
}

}  // namespace millrace::memory
