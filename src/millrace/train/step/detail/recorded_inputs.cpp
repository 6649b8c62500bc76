#include "millrace/train/step/detail/recorded_inputs.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/kernels/device_table.h"

namespace millrace {
namespace {

using kernels::detail::RecordedSite;

constexpr std::size_t kAligned = sizeof(RecordedSite);
constexpr std::size_t kMostBytes = 4096 * sizeof(RecordedSite);

std::vector<std::int64_t> counts_of(const RandomScope::Site& site, std::int64_t elements) {
  if (site.runs.empty()) return {elements};
  std::vector<std::int64_t> counts;
  for (const IndexRun& run : site.runs) counts.push_back(run.count);
  return counts;
}

bool operator==(const std::vector<IndexRun>& a, const std::vector<IndexRun>& b) {
  return std::ranges::equal(a, b, [](const IndexRun& x, const IndexRun& y) { return x.first == y.first && x.count == y.count; });
}

}  // namespace

std::vector<std::size_t> groups_by_appearance(const Batch& batch) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < batch.groups().size(); ++i)
    if (batch.groups()[i].rows() > 0) order.push_back(i);
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return std::ranges::min(batch.groups()[i].positions); });
  return order;
}

RecordedInputs::RecordedInputs(at::Device device, std::uint64_t seed)
    : device_(device),
      seed_(seed),
      memory_(at::empty({static_cast<std::int64_t>(kMostBytes)}, at::TensorOptions(at::kByte).device(device))) {}

std::vector<RecordedInputs::Rows> RecordedInputs::rows_in(const Batch& batch) {
  std::vector<Rows> all = {rows_of(batch)};
  std::vector<std::int64_t> together, by_appearance;
  const auto add = [](std::vector<std::int64_t>& to, const Group& group) {
    to.insert(to.end(), group.positions.begin(), group.positions.end());
  };
  for (const Group& group : batch.groups()) add(together, group);
  for (const std::size_t i : groups_by_appearance(batch)) add(by_appearance, batch.groups()[i]);
  all.push_back(runs_of(together));
  all.push_back(runs_of(by_appearance));
  for (const Group& group : batch.groups()) all.push_back(runs_of(group.positions));
  all.emplace_back();  // the last entry stands for sites whose rows are not known
  return all;
}

void RecordedInputs::begin(const Batch& batch) {
  epoch_ = batch.epoch();
  recorded_ = rows_in(batch);
}

RandomScope::Site RecordedInputs::site_of(const Entry& entry, std::uint64_t epoch, const Rows& rows) const {
  return RandomScope::site_at({.seed = seed_, .epoch = epoch, .site = entry.site, .rows = rows}, entry.elements);
}

const void* RecordedInputs::place_of(const RandomScope::Position& position, std::int64_t elements) {
  const std::scoped_lock lock(mutex_);
  const auto rows = std::ranges::find_if(recorded_, [&](const Rows& known) { return known == position.rows; });
  if (rows == recorded_.end())
    throw RecipeError({"the loss draws random numbers for rows in an order that the batch does not have",
                       "RowScope in Objective::loss", "keep the order of the batch or of its groups"});
  Entry fresh{
      .site = position.site, .elements = elements, .rows = static_cast<std::size_t>(rows - recorded_.begin()), .counts = {}};
  // the site may be known already, because a recomputed block asks for it again
  auto known = std::ranges::find_if(entries_, [&](const Entry& entry) {
    return entry.site == fresh.site && entry.elements == fresh.elements && entry.rows == fresh.rows;
  });
  if (known == entries_.end()) {
    fresh.counts = counts_of(site_of(fresh, epoch_, *rows), elements);
    fresh.first = take(fresh.counts.size() * sizeof(RecordedSite));
    entries_.push_back(std::move(fresh));
    known = entries_.end() - 1;
  }
  return memory_.const_data_ptr<std::uint8_t>() + known->first;
}

at::Tensor RecordedInputs::place_of(StepNumbers::Number number) {
  const std::scoped_lock lock(mutex_);
  const std::size_t place = take(kAligned);
  numbers_.push_back({place, std::move(number)});
  return memory_.narrow(0, static_cast<std::int64_t>(place), sizeof(double)).view(at::kDouble).squeeze(0);
}

// Reserves this many bytes and returns their offset.
std::size_t RecordedInputs::take(std::size_t bytes) {
  if (kernels::device_table(device_.type()) == nullptr)
    throw RecipeError({"this build has no kernels for the device", device_.str(),
                       "build where nvcc is found; kernels are for compute capability 8.0 and later"});
  const std::size_t place = host_.size();
  if (place + bytes > kMostBytes)
    throw RecipeError(
        {"the step takes too many numbers from the host", "Objective::loss", "use fewer layers that draw random numbers"});
  host_.resize(place + bytes);
  return place;
}

// True if all orders of rows that equalled the order of `entry` in the recorded batch equal each other in this batch too.
// Otherwise it is unknown in which of these orders the site draws.
bool RecordedInputs::are_alike(const Entry& entry, const std::vector<Rows>& rows) const {
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (recorded_[i] == recorded_[entry.rows] && !(rows[i] == rows[entry.rows])) return false;
  return true;
}

bool RecordedInputs::write(const Batch& batch, std::int64_t step) {
  if (host_.empty()) return true;
  const std::vector<Rows> rows = rows_in(batch);
  if (rows.size() != recorded_.size()) return false;
  for (const Entry& entry : entries_) {
    is_unsure_ = is_unsure_ || !are_alike(entry, rows);
    if (is_unsure_) return false;
    const RandomScope::Site site = site_of(entry, batch.epoch(), rows[entry.rows]);
    if (counts_of(site, entry.elements) != entry.counts) return false;
    for (std::size_t run = 0; run < entry.counts.size(); ++run) {
      const RecordedSite there{.key = site.key, .first = site.runs.empty() ? site.first : site.runs[run].first};
      std::memcpy(host_.data() + entry.first + run * sizeof there, &there, sizeof there);
    }
  }
  for (const auto& [place, number] : numbers_) {
    const double value = number(step, batch.epoch());
    std::memcpy(host_.data() + place, &value, sizeof value);
  }
  kernels::device_table(device_.type())
      ->write(memory_.mutable_data_ptr<std::uint8_t>(), host_.data(), host_.size(), device_.index());
  return true;
}

}  // namespace millrace
