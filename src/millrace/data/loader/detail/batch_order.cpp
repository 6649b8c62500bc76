#include "millrace/data/loader/detail/batch_order.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/hash.h"
#include "millrace/base/philox.h"

namespace millrace::data::detail {
namespace {

constexpr std::uint64_t kOrderUse = 0x6F72646572ULL;  // makes the order's keys differ from the keys of ReadRandom
constexpr std::uint64_t kReplaceUse = 0x73756273ULL;
constexpr std::uint64_t kDrawUse = 0x64726177ULL;
constexpr const char* kRecipe = "the recipe's data()";

[[noreturn]] void refuse(std::string what, std::string where, std::string next) {
  throw ConfigError(Message{.what = std::move(what), .where = std::move(where), .next = std::move(next)});
}

std::string label_of(const Dataset& dataset) {
  return dataset.name.empty() ? "the data set" : "data set " + quoted(dataset.name);
}

std::string_view word_of(Grouping grouping) {
  switch (grouping) {
    case Grouping::each:
      return "each";
    case Grouping::repeat:
      return "repeat";
    case Grouping::cut:
      return "cut";
    case Grouping::mix:
      return "mix";
  }
  return "";
}

Order permutation(bool shuffle, std::int64_t size, std::uint64_t seed, std::uint64_t epoch, std::uint64_t round) noexcept {
  if (!shuffle) return Order(size);
  return {size, round == 0 ? make_key(seed, epoch, kOrderUse) : make_key(seed, epoch, kOrderUse, round)};
}

std::string rounds_text(double rounds) {
  if (rounds > 1) return "repeats " + fixed(rounds, 1) + " times an epoch";
  return rounds == 1 ? "each sample once an epoch" : significant(100 * rounds, 3) + " % of the samples an epoch";
}

}  // namespace

void BatchOrder::check(const std::vector<Dataset>& datasets) const {
  if (const auto& samples = options_.samples_per_epoch; samples && !mixes())
    refuse("samples_per_epoch is " + with_commas(*samples) + ", but the data sets are not mixed", kRecipe,
           "use Grouping::mix, or leave Pipeline::samples_per_epoch out");
  if (const auto& samples = options_.samples_per_epoch; samples && *samples < 1)
    refuse("samples_per_epoch is " + with_commas(*samples), kRecipe, "set Pipeline::samples_per_epoch to 1 or more");
  for (const Dataset& dataset : datasets) {
    const std::string label = label_of(dataset);
    if (dataset.batch_size && *dataset.batch_size < 1)
      refuse("the batch size of " + label + " is " + std::to_string(*dataset.batch_size), kRecipe, "set it to 1 or more");
    if (dataset.batch_size && mixes())
      refuse(label + " has a batch size of its own, but the data sets are mixed", kRecipe,
             "give it a weight instead, or take another Grouping");
    if (dataset.weight && !mixes())
      refuse(label + " has a weight, but the data sets are not mixed", kRecipe,
             "take Grouping::mix, or give it a batch size of its own instead");
    if (dataset.weight && !(*dataset.weight > 0 && std::isfinite(*dataset.weight)))
      refuse("the weight of " + label + " is " + significant(*dataset.weight, 6), kRecipe, "set it to a number above 0");
    if ((dataset.weight || dataset.weights) && !options_.shuffle)
      refuse(label + " has weights, but samples are read in order, so nothing is drawn", "data.shuffle",
             "set data.shuffle=true, or leave the weights out");
    std::int64_t global = 0;
    if (__builtin_mul_overflow(dataset.batch_size.value_or(options_.batch_size), std::int64_t{options_.world_size}, &global))
      refuse("the global batch is too large", "data.batch_size", "lower it");
  }
}

BatchOrder::BatchOrder(const std::vector<Dataset>& datasets, BatchOrderOptions options) : options_(options) {
  check(datasets);
  for (std::size_t group = 0; group < datasets.size(); ++group) {
    const Dataset& dataset = datasets[group];
    Set set{.name = dataset.name,
            .size = dataset.source->size(),
            .first = all_,
            .slices = {},
            .weight = dataset.weight,
            .weights = dataset.weights};
    set.slices = {set.size, dataset.batch_size.value_or(options_.batch_size), options_.world_size, options_.drop_last};
    set.seed = group == 0 ? options_.seed : make_key(options_.seed, group);
    has_weights_ = has_weights_ || set.weight || set.weights;
    if (__builtin_add_overflow(all_, set.size, &all_))
      refuse("the data sets have too many samples to count", kRecipe, "use fewer");
    sets_.push_back(std::move(set));
  }
  mixed_ = {options_.samples_per_epoch.value_or(all_), options_.batch_size, options_.world_size, options_.drop_last};
  lengthen();
  order_text_ = make_order_text();
}

// Sets the number of batches in an epoch and how each data set fills the epoch.
void BatchOrder::lengthen() {
  const auto shorter = [](const Set& a, const Set& b) { return a.slices.batches() < b.slices.batches(); };
  const auto [shortest, longest] = std::minmax_element(sets_.begin(), sets_.end(), shorter);
  batches_ = options_.grouping == Grouping::cut ? shortest->slices.batches() : longest->slices.batches();
  if (mixes()) batches_ = mixed_.batches();
  for (Set& set : sets_) {
    const std::int64_t global = set.slices.batch_size * set.slices.world_size;
    std::int64_t full = 0;
    const bool overflows = __builtin_mul_overflow(batches_, global, &full);
    if (options_.grouping == Grouping::cut && !overflows) set.slices.size = std::min(set.size, full);
    if (options_.grouping != Grouping::repeat || set.slices.batches() == batches_) continue;
    if (overflows)
      refuse("an epoch is too long to count: the batches of " + label(set) + " are too large", kRecipe, "lower its batch size");
    set.slices.size = full;
  }
}

std::string BatchOrder::label(const Set& set) const { return set.name.empty() ? "the data set" : "data set " + quoted(set.name); }

std::int64_t BatchOrder::samples_per_epoch() const noexcept {
  const auto delivered = [this](const BatchSlices& slices) {
    return options_.drop_last ? slices.batches() * slices.batch_size * slices.world_size : slices.size;
  };
  if (mixes()) return delivered(mixed_);
  std::int64_t sum = 0;
  for (const Set& set : sets_) sum += delivered(set.slices);
  return sum;
}

std::int64_t BatchOrder::rows_before(std::int64_t count) const noexcept {
  const auto rows_of = [&](const BatchSlices& slices) {
    const std::int64_t batches = std::min(count, slices.batches());
    return batches == 0 ? 0 : (batches - 1) * slices.batch_size + slices.slice(batches - 1, options_.rank).count;
  };
  if (mixes()) return rows_of(mixed_);
  std::int64_t rows = 0;
  for (const Set& set : sets_) rows += rows_of(set.slices);
  return rows;
}

std::int64_t BatchOrder::rows_per_batch() const noexcept {
  if (mixes()) return options_.batch_size;
  std::int64_t rows = 0;
  for (const Set& set : sets_) rows += set.slices.batch_size;
  return rows;
}

std::int64_t BatchOrder::most_rows(std::size_t group) const noexcept {
  return mixes() ? options_.batch_size : sets_[group].slices.batch_size;
}

RowRange BatchOrder::rows(std::size_t group, std::int64_t batch) const noexcept {
  return sets_[group].slices.slice(batch, options_.rank);
}

RowRange BatchOrder::mixed_rows(std::int64_t batch) const noexcept { return mixed_.slice(batch, options_.rank); }

void BatchOrder::fill(std::size_t group, std::uint64_t epoch, std::int64_t first, std::span<std::int64_t> indices) const {
  const Set& set = sets_[group];
  if (set.weights) {
    const std::shared_ptr<const Draws> draws = draws_of(epoch);
    if (const auto& table = draws->samples[group]) {
      for (std::size_t i = 0; i < indices.size(); ++i)
        indices[i] = (*table)(Philox(make_key(set.seed, epoch, static_cast<std::uint64_t>(first) + i, kDrawUse)).uniform());
      return;
    }
  }
  while (!indices.empty()) {
    const std::int64_t round = first / set.size;
    const std::int64_t begin = first % set.size;
    const auto count = static_cast<std::size_t>(std::min(set.size - begin, static_cast<std::int64_t>(indices.size())));
    permutation(options_.shuffle, set.size, set.seed, epoch, static_cast<std::uint64_t>(round)).fill(begin, indices.first(count));
    indices = indices.subspan(count);
    first += static_cast<std::int64_t>(count);
  }
}

void BatchOrder::fill_mixed(std::uint64_t epoch, std::int64_t first, std::span<MixedRow> places) const {
  const std::shared_ptr<const Draws> draws = has_weights_ ? draws_of(epoch) : nullptr;
  if (draws && draws->share_table) {
    for (std::size_t i = 0; i < places.size(); ++i) {
      Philox draw(make_key(options_.seed, epoch, static_cast<std::uint64_t>(first) + i, kDrawUse));
      const auto group = static_cast<std::size_t>((*draws->share_table)(draw.uniform()));
      const auto& table = draws->samples[group];
      places[i] = {group, table ? (*table)(draw.uniform())
                                : static_cast<std::int64_t>(draw.below(static_cast<std::uint64_t>(sets_[group].size)))};
    }
    return;
  }
  std::array<std::int64_t, 64> indices{};
  while (!places.empty()) {
    const std::int64_t round = first / all_;
    const std::int64_t begin = first % all_;
    const auto count = static_cast<std::size_t>(
        std::min({all_ - begin, static_cast<std::int64_t>(places.size()), static_cast<std::int64_t>(indices.size())}));
    permutation(options_.shuffle, all_, options_.seed, epoch, static_cast<std::uint64_t>(round))
        .fill(begin, {indices.data(), count});
    for (std::size_t i = 0; i < count; ++i) {
      const auto after = std::upper_bound(sets_.begin(), sets_.end(), indices[i],
                                          [](std::int64_t index, const Set& set) { return index < set.first; });
      const Set& set = *std::prev(after);
      places[i] = {static_cast<std::size_t>(&set - sets_.data()), indices[i] - set.first};
    }
    places = places.subspan(count);
    first += static_cast<std::int64_t>(count);
  }
}

std::int64_t BatchOrder::replacement(std::size_t group, std::uint64_t epoch, std::uint64_t position,
                                     std::uint64_t attempt) const {
  const Set& set = sets_[group];
  Philox draw(make_key(set.seed, epoch, position, kReplaceUse, attempt));
  if (set.weights) {
    const std::shared_ptr<const Draws> draws = draws_of(epoch);
    if (const auto& table = draws->samples[group]) return (*table)(draw.uniform());
  }
  return static_cast<std::int64_t>(draw.below(static_cast<std::uint64_t>(set.size)));
}

std::shared_ptr<const BatchOrder::Draws> BatchOrder::draws_of(std::uint64_t epoch) const {
  const std::lock_guard lock(mutex_);  // other threads wait here, so that only one thread makes the table
  for (const auto& draws : recent_) {
    if (draws && draws->epoch == epoch) return draws;
  }
  std::shared_ptr<const Draws> made = make_draws(epoch);
  std::rotate(recent_.begin(), recent_.end() - 1, recent_.end());
  recent_.front() = made;
  return made;
}

std::shared_ptr<const BatchOrder::Draws> BatchOrder::make_draws(std::uint64_t epoch) const {
  auto draws = std::make_shared<Draws>();
  draws->epoch = epoch;
  bool any = std::any_of(sets_.begin(), sets_.end(), [](const Set& set) { return set.weight.has_value(); });
  const bool by_set = any;
  for (const Set& set : sets_) {
    auto& table = draws->samples.emplace_back();
    const std::vector<float> weights = set.weights ? set.weights(epoch) : std::vector<float>();
    draws->prints.push_back(crc32c(std::as_bytes(std::span(weights))));
    if (weights.empty()) continue;
    refuse_bad_weights(weights, set.size, "the weights of " + label(set) + " for epoch " + std::to_string(epoch));
    table.emplace(std::span(weights));
    any = true;
  }
  if (!mixes() || !any) return draws;
  for (std::size_t group = 0; group < sets_.size(); ++group) {
    const auto& table = draws->samples[group];
    draws->shares.push_back(by_set  ? sets_[group].weight.value_or(1.0)
                            : table ? table->sum()
                                    : static_cast<double>(sets_[group].size));
  }
  draws->share_table.emplace(std::span<const double>(draws->shares));
  return draws;
}

std::string BatchOrder::make_order_text() const {
  const bool own_sizes =
      std::any_of(sets_.begin(), sets_.end(), [&](const Set& set) { return set.slices.batch_size != options_.batch_size; });
  const bool plain = options_.grouping == Grouping::each || (sets_.size() == 1 && !mixes());
  if (plain && !own_sizes && !has_weights_) return "";
  std::string text(word_of(options_.grouping));
  if (options_.samples_per_epoch) text += " of " + with_commas(*options_.samples_per_epoch);
  const std::shared_ptr<const Draws> draws = has_weights_ ? draws_of(0) : nullptr;
  for (std::size_t group = 0; group < sets_.size(); ++group) {
    const Set& set = sets_[group];
    text += (group == 0 ? "; " : ", ") + set.name;
    if (own_sizes) text += " by " + with_commas(set.slices.batch_size * set.slices.world_size);
    if (set.weight) text += " weighs " + lasting(*set.weight, 9);
    if (set.weights) text += " weights " + std::to_string(draws->prints[group]);
  }
  return text;
}

std::vector<Loader::DatasetPlan> BatchOrder::dataset_plans() const {
  std::vector<Loader::DatasetPlan> plans;
  for (std::size_t group = 0; group < sets_.size(); ++group) {
    const Set& set = sets_[group];
    plans.push_back({.name = set.name, .samples = set.size, .batch_size = most_rows(group), .rule = rule_of(group)});
  }
  return plans;
}

std::string BatchOrder::rule_of(std::size_t group) const {
  const Set& set = sets_[group];
  if (mixes()) {
    const std::shared_ptr<const Draws> draws = has_weights_ ? draws_of(0) : nullptr;
    const bool drawn = draws && draws->share_table;
    const double share =
        drawn ? draws->shares[group] / draws->share_table->sum() : static_cast<double>(set.size) / static_cast<double>(all_);
    return "mixed: " + significant(100 * share, 3) + " % of the rows, " +
           (drawn ? "drawn with replacement" : rounds_text(static_cast<double>(mixed_.size) / static_cast<double>(all_)));
  }
  const std::int64_t positions =
      options_.drop_last ? set.slices.batches() * set.slices.batch_size * set.slices.world_size : set.slices.size;
  if (set.weights && draws_of(0)->samples[group])
    return "drawn by weight with replacement, " + with_commas(positions) + " draws an epoch";
  if (positions > set.size) return rounds_text(static_cast<double>(positions) / static_cast<double>(set.size));
  if (positions < set.size) return "cut to " + with_commas(positions) + " of " + with_commas(set.size) + " samples an epoch";
  if (set.slices.batches() < batches_)
    return "each sample once an epoch; no rows from batch " + with_commas(set.slices.batches()) + " of " + with_commas(batches_) +
           " on";
  return "each sample once an epoch";
}

}  // namespace millrace::data::detail
