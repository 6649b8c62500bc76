// The part of Board that writes and reads its sums as JSON, for snapshots and between ranks.
#include <ATen/ops/maximum.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "millrace/metrics/board.h"
#include "millrace/metrics/detail/sums.h"

namespace millrace::metrics {

using detail::kPerTerm;

namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 53;  // integers up to this size are exact as doubles

}  // namespace

// Saves only the nonzero counts of classes: cell, count, cell, count, …
Json Board::saved_of(const Entry& entry, const double* value) {
  Json saved = {{"name", entry.name}, {"reading", word_of(entry.reading)}};
  if (entry.reading == Reading::information) {
    saved["overall"] = entry.overall;
    saved["sums"] = std::vector<double>(value, value + entry.parts[0].numel());
    return saved;
  }
  if (entry.reading != Reading::classification) {
    saved["sums"] = std::vector<double>(value, value + entry.parts.size());
    for (std::size_t i = 0; i < entry.terms.size(); ++i)
      saved["terms"].push_back({{"name", entry.terms[i]}, {"reading", word_of(entry.readings[i])}});
    return saved;
  }
  const auto cells = static_cast<std::size_t>(entry.parts[0].numel());
  std::vector<std::int64_t> counts;
  for (std::size_t i = 0; i < cells; ++i) {
    if (value[i] > 0) counts.insert(counts.end(), {static_cast<std::int64_t>(i), static_cast<std::int64_t>(value[i])});
  }
  std::vector<std::int64_t> extremes;
  for (std::size_t i = cells + 1; i <= cells + detail::kExtremes; ++i)
    extremes.push_back(static_cast<std::int64_t>(std::min(value[i], static_cast<double>(kMost))));
  saved.update({{"prefix", entry.how.name},
                {"classes", entry.how.classes},
                {"per_class", entry.how.per_class},
                {"top_k", entry.how.top_k},
                {"counts", std::move(counts)},
                {"hits", static_cast<std::int64_t>(value[cells])},
                {"extremes", std::move(extremes)}});
  return saved;
}

Json Board::state() const {
  const Host host = read_back();
  Json entries = Json::array();
  for (std::size_t i = 0; i < entries_.size(); ++i) entries.push_back(saved_of(entries_[i], host.of(i)));
  return {{"entries", std::move(entries)}, {"quiet", quiet_}};
}

void Board::add_saved_classification(const SavedJson& saved) {
  Classification how{.top_k = saved["top_k"].integer(0, detail::kMostClasses),
                     .per_class = saved["per_class"].boolean(),
                     .name = saved["prefix"].text()};
  for (const SavedJson& name : saved["classes"].list()) how.classes.push_back(name.text());
  const auto classes = static_cast<std::int64_t>(how.classes.size());
  if (classes < 1 || classes > detail::kMostClasses) saved["classes"].refuse("a list of 1 to 4096 names");
  if (saved["name"].text() != how.prefix() + "confusion") saved["name"].refuse("its prefix followed by \"confusion\"");
  for (const Entry& known : entries_) {
    const bool same = known.how.classes == how.classes && known.how.top_k == how.top_k;
    if (known.name == how.prefix() + "confusion" && !same)
      saved["classes"].refuse("the classes of an earlier entry of the same name");
  }
  Entry& entry = classification_of(how);
  const std::vector<SavedJson> counts = saved["counts"].list();
  if (counts.size() % 2 != 0) saved["counts"].refuse("pairs of cell and count");
  auto* cells = entry.parts[0].mutable_data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < counts.size(); i += 2)
    cells[counts[i].integer(0, entry.parts[0].numel() - 1)] += counts[i + 1].integer(0, kMost);
  entry.parts[1].add_(saved["hits"].integer(0, kMost));
  std::vector<std::int64_t> extremes;
  for (const SavedJson& value : saved["extremes"].list(detail::kExtremes)) extremes.push_back(value.integer(0, kMost));
  entry.parts[2] = at::maximum(entry.parts[2], at::tensor(extremes, at::kLong));
}

void Board::add_saved(std::string_view name, const SavedJson& saved) {
  if (const auto sum = saved.find("sum")) return add(name, sum->number_or_nan(), saved["count"].number_or_nan());
  const auto reading_of = [](const SavedJson& where, std::initializer_list<Reading> known) {
    const std::string word = where.text();
    std::string expected;
    for (const Reading each : known) {
      if (word == word_of(each)) return each;
      expected += (expected.empty() ? "\"" : ", \"") + std::string(word_of(each)) + "\"";
    }
    where.refuse(expected);
  };
  const Reading reading = reading_of(
      saved["reading"], {Reading::mean, Reading::log_mean, Reading::root_mean, Reading::defined_mean, Reading::correlation,
                         Reading::determination, Reading::total, Reading::classification, Reading::information});
  for (const Entry& known : entries_) {
    if (known.name == name && known.reading != reading)
      saved["reading"].refuse("the reading of an earlier entry of the same name");
  }
  if (reading == Reading::classification) return add_saved_classification(saved);
  if (reading == Reading::information) return add_saved_information(name, saved);
  std::vector<std::pair<std::string, Reading>> terms;
  if (reading == Reading::total) {
    for (const SavedJson& term : saved["terms"].list())
      terms.emplace_back(term["name"].text(), reading_of(term["reading"], {Reading::mean, Reading::log_mean}));
  }
  const std::size_t count = reading == Reading::total ? kPerTerm * terms.size() : sums_of(reading);
  std::vector<at::Tensor> values;
  for (const SavedJson& value : saved["sums"].list(count))
    values.push_back(at::scalar_tensor(value.number_or_nan(), at::kDouble));
  if (reading != Reading::total) return add(name, reading, values);
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(kPerTerm * i);
    add_to_total(name, terms[i].first, terms[i].second, {first, first + kPerTerm});
  }
}

// Snapshots of earlier versions hold {name: entry}, without an order.
void Board::add_saved(const SavedJson& state) {
  const auto entries = state.find("entries");
  if (!entries || !entries->json().is_array()) {
    for (const auto& [name, entry] : state.members()) add_saved(name, entry);
    return;
  }
  for (const SavedJson& entry : entries->list()) add_saved(entry["name"].text(), entry);
  for (const SavedJson& pattern : state["quiet"].list()) quiet(pattern.text());
}

void Board::load_state(const SavedJson& state) {
  reset();
  add_saved(state);
}

void Board::sum_over(Agreement& agreement) {
  if (agreement.alone()) return;
  Json mine = state();  // state() holds no directions, because a resumed run sets them again when it measures
  for (const auto& [pattern, best_is] : best_is_) mine["best_is"][pattern] = static_cast<int>(best_is);
  const std::vector<Json> all = agreement.gather(mine);
  reset();
  for (const Json& one : all) {
    const SavedJson saved(one, "metrics of another rank");
    add_saved(saved);
    const auto directions = saved.find("best_is");
    if (!directions) continue;
    for (const auto& [pattern, best_is] : directions->members()) know(pattern, static_cast<BestIs>(best_is.integer(0, 2)));
  }
}

}  // namespace millrace::metrics
