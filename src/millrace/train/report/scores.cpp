#include "millrace/train/report/scores.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/core/saved_json.h"

namespace millrace {
namespace {

// True if a snapshot can hold the state after `step`. No snapshot holds the state before the first step. The validation of that
// state is only for comparison: if it were the best, the run would have no best snapshot.
bool can_be_kept(std::int64_t step) { return step > 0; }

struct Judge {
  std::string metric;
  bool highest = false;
  friend bool operator==(const Judge&, const Judge&) = default;
};

std::string to_text(const Judge& judge) { return "the " + std::string(judge.highest ? "highest " : "lowest ") + judge.metric; }

// The metric that judged the run that wrote the snapshot, and its direction. nullopt if the snapshot is of an earlier version.
std::optional<Judge> judge_in(const SavedJson& report) {
  const auto saved = report.find("judge");
  if (!saved) return std::nullopt;
  return Judge{(*saved)["metric"].text(), (*saved)["highest"].boolean()};
}

// Throws ConfigError if the config keeps the worst values of a metric. A rehearsal finds this mistake earlier, if the run has
// one.
void refuse_the_worst(const Judge& judge, metrics::Means::BestIs known) {
  if (known == metrics::Means::BestIs::unknown || (known == metrics::Means::BestIs::highest) == judge.highest) return;
  const std::string kept = judge.highest ? "highest" : "lowest", best = judge.highest ? "lowest" : "highest";
  throw ConfigError({"the best " + judge.metric + " is the " + best + " value, but the config keeps the " + kept + " as the best",
                     "snapshot.best_is = " + kept, "--snapshot.best_is=" + best});
}

}  // namespace

std::string_view word_of(metrics::Means::BestIs best_is) {
  if (best_is == metrics::Means::BestIs::unknown) return "";
  return best_is == metrics::Means::BestIs::highest ? "highest" : "lowest";
}

Metric& Scores::Metrics::operator[](std::string_view name) {
  const auto found = std::ranges::find(values_, name, &value_type::first);
  return found != values_.end() ? found->second : values_.emplace_back(std::string(name), Metric{}).second;
}

Scores::Metrics::const_iterator Scores::Metrics::find(std::string_view name) const noexcept {
  return std::ranges::find(values_, name, &value_type::first);
}

const Metric& Scores::Metrics::at(std::string_view name) const {
  const auto found = find(name);
  if (found == values_.end()) throw std::out_of_range("no metric " + std::string(name));
  return found->second;
}

void Scores::Metrics::put_in_order(const std::vector<std::string>& names) {
  auto next = values_.begin();
  for (const std::string& name : names) {
    const auto found = std::find_if(next, values_.end(), [&](const value_type& value) { return value.first == name; });
    if (found != values_.end()) std::rotate(next++, found, std::next(found));
  }
}

Scores::Scores(const SnapshotConfig& snapshot, const TrainConfig& train, const std::string& loss)
    : judged_(snapshot.best_metric.empty() ? loss : snapshot.best_metric),
      named_(!snapshot.best_metric.empty()),
      highest_(snapshot.best_is == SnapshotConfig::BestIs::highest),
      keeps_(snapshot.keep_best ? static_cast<std::size_t>(snapshot.best_count) : 0),
      patience_(train.early_stop_patience),
      least_gain_(train.early_stop_delta) {}

// Adds the step to the best ones if its value is among the best `keeps_` values. An earlier step with an equal value stays in
// front.
bool Scores::rank(std::int64_t step, double value) {
  if (!std::isfinite(value) || keeps_ == 0) return false;
  const auto worse = [&](const Best& known) { return highest_ ? known.value < value : known.value > value; };
  const auto place = std::find_if(best_.begin(), best_.end(), worse);
  if (static_cast<std::size_t>(place - best_.begin()) >= keeps_) return false;
  best_.insert(place, {value, step});
  if (best_.size() > keeps_) best_.pop_back();
  return true;
}

// If the judged metric was measured under an older definition, removes the best values, because values under the corrected
// definition may never reach them.
void Scores::forget_other_version(const metrics::Means::MetricVersion& now) {
  forgot_.clear();
  const auto known = metrics_.find(judged_);
  if (known == metrics_.end() || known->second.version == now.number || !now.moved || known->second.at_best_step < 0) return;
  forgot_ = judged_ + " is measured by version " + std::to_string(now.number) + " now: its earlier best, " +
            significant(known->second.at_best, 4) + " at step " + std::to_string(known->second.at_best_step) + " by version " +
            std::to_string(known->second.version) + ", no longer counts";
  for (const auto& [name, metric] : Scores::Metrics(metrics_)) {
    metrics_[name].at_best = Metric::kNaN;
    metrics_[name].at_best_step = -1;
  }
  best_.clear();
  early_stop_best_ = std::nan("");
  without_gain_ = 0;
}

// Updates the best value of one metric. Values under an earlier definition do not count if the corrected definition gives other
// values.
void Scores::record_own(Metric& metric, std::int64_t step, const metrics::Means& means,
                        const metrics::Means::value_type& now) const {
  const auto& [name, value] = now;
  const metrics::Means::MetricVersion version = means.version_of(name);
  if (metric.best_step >= 0 && metric.version != version.number && version.moved) {
    metric.best = Metric::kNaN;
    metric.best_step = -1;
  }
  using BestIs = metrics::Means::BestIs;
  metric.best_is = name != judged_ ? means.best_is_of(name) : highest_ ? BestIs::highest : BestIs::lowest;
  metric.version = version.number;
  if (metric.best_is == BestIs::unknown || !std::isfinite(value)) return;
  if (name == judged_ && !can_be_kept(step)) return;
  const bool equal_or_worse = metric.best_is == BestIs::highest ? metric.best >= value : metric.best <= value;
  if (equal_or_worse) return;
  metric.best = value;
  metric.best_step = step;
}

bool Scores::record(std::int64_t step, const metrics::Means& means) {
  if (named_) refuse_the_worst({judged_, highest_}, means.best_is_of(judged_));
  const auto it = means.find(judged_);
  if (it == means.end() && named_) {
    std::string names;
    for (const auto& [name, value] : means) names += (names.empty() ? "" : ", ") + name;
    throw ConfigError({"validation gives no metric " + quoted(judged_), "snapshot.best_metric", "it gives " + names});
  }
  const double judged = it == means.end() ? std::nan("") : it->second;
  forget_other_version(means.version_of(judged_));
  const auto before = metrics_.find(judged_);
  const bool equal_or_worse =
      before != metrics_.end() && (highest_ ? before->second.at_best >= judged : before->second.at_best <= judged);
  const bool gained = std::isfinite(judged) && !equal_or_worse && can_be_kept(step);
  for (const auto& now : means) {
    Metric& metric = metrics_[now.first];
    metric.last = now.second;
    metric.quiet = !means.shown_on_console(now.first);
    record_own(metric, step, means, now);
    if (gained) {
      metric.at_best = now.second;
      metric.at_best_step = step;
    }
  }
  std::vector<std::string> order;
  for (const auto& [name, value] : means) order.push_back(name);
  metrics_.put_in_order(order);  // needed because a resumed run may have the metrics in another order
  if (!can_be_kept(step)) return false;
  wants_save_ = rank(step, judged) || wants_save_;
  const bool too_little = highest_ ? early_stop_best_ + least_gain_ >= judged : early_stop_best_ - least_gain_ <= judged;
  // early_stop_best_ is NaN until the first gain; the comparison above is then false, so the first gain counts
  const bool enough = std::isfinite(judged) && !too_little;
  without_gain_ = enough ? 0 : without_gain_ + 1;
  if (enough) early_stop_best_ = judged;
  return gained;
}

std::vector<std::int64_t> Scores::best_steps() const {
  std::vector<std::int64_t> steps;
  for (const Best& best : best_) steps.push_back(best.step);
  return steps;
}

bool Scores::stopped_improving() const { return patience_ > 0 && without_gain_ >= patience_; }

std::int64_t Scores::judged_step() const {
  const auto judged = metrics_.find(judged_);
  return judged == metrics_.end() ? -1 : judged->second.at_best_step;
}

Json Scores::judged_result() const {
  const std::int64_t step = judged_step();
  if (step < 0) return {};
  return {{"metric", judged_},
          {"is", highest_ ? "highest" : "lowest"},
          {"value", number_or_text(metrics_.at(judged_).at_best)},
          {"step", step}};
}

Json Scores::results() const {
  Json all = Json::object();
  const std::int64_t judged = judged_step();
  for (const auto& [name, metric] : metrics_) {
    const bool has_best = metric.best_step >= 0 && metric.knows_all;
    const bool was_there = judged >= 0 && metric.at_best_step == judged;
    all[name] = {{"last", number_or_text(metric.last)},
                 {"best", has_best ? number_or_text(metric.best) : Json()},
                 {"best_step", has_best ? Json(metric.best_step) : Json()},
                 {"at_best", was_there ? number_or_text(metric.at_best) : Json()}};
    if (const std::string_view word = word_of(metric.best_is); !word.empty()) all[name]["best_is"] = word;
    if (metric.quiet) all[name]["quiet"] = true;
    if (metric.version != 1) all[name]["version"] = metric.version;
  }
  return all;
}

std::vector<std::string> Scores::names() const {
  std::vector<std::string> names;
  for (const auto& [name, metric] : metrics_) names.push_back(name);
  return names;
}

void Scores::write_state(Json& trainer, Json& report) const {
  report["judge"] = {{"metric", judged_}, {"highest", highest_}};
  report["metrics_order"] = names();
  for (const auto& [name, metric] : metrics_)
    if (metric.version != 1) report["metric_versions"][name] = metric.version;
  report["metric_bests"] = Json::object();
  for (const auto& [name, metric] : metrics_) {
    if (name != judged_ && metric.knows_all)
      report["metric_bests"][name] = {static_cast<int>(metric.best_is), number_or_null(metric.best), metric.best_step};
  }
  trainer["validations_without_gain"] = without_gain_;
  trainer["early_stop_best"] = number_or_null(early_stop_best_);
  trainer["metrics"] = Json::object();
  for (const auto& [name, metric] : metrics_) {
    Json& saved = trainer["metrics"][name] = {number_or_null(metric.last), number_or_null(metric.at_best), metric.at_best_step};
    if (metric.quiet) saved.push_back(true);
  }
  if (best_.size() < 2) return;
  Json ranked = Json::array();
  for (const Best& best : best_) ranked.push_back({best.value, best.step});
  trainer["best"] = std::move(ranked);
}

Metric metric_from(const SavedJson& saved, std::int64_t step) {
  const std::vector<SavedJson> values = saved.list(saved.json().is_array() && saved.json().size() == 4 ? 4 : 3);
  Metric metric;
  metric.last = values[0].number_or_nan();
  metric.at_best = values[1].number_or_nan();
  metric.at_best_step = values[2].integer(-1, step);
  metric.quiet = values.size() == 4 && values[3].boolean();
  return metric;
}

std::vector<std::string> metrics_in_order(const Json& summary) {
  std::vector<std::string> names;
  if (!summary.is_object() || !summary.contains("metrics") || !summary["metrics"].is_object()) return names;
  const Json& metrics = summary["metrics"];
  const auto add = [&](const std::string& name) {
    if (metrics.contains(name) && std::ranges::find(names, name) == names.end()) names.push_back(name);
  };
  for (const Json& name : summary.value("metrics_order", Json::array()))
    if (name.is_string()) add(name.get<std::string>());
  for (const auto& [name, metric] : metrics.items()) add(name);
  return names;
}

// Loads the best values. Snapshots of earlier versions hold only the best value of the judged metric. If another metric judges
// from now on, the best value of the new judge is taken from the kept snapshots.
void Scores::load_bests(const SavedJson& report) {
  const auto bests = report.find("metric_bests");
  const auto before = judge_in(report);
  for (const auto& [name, each] : Scores::Metrics(metrics_)) {
    Metric& metric = metrics_[name];
    const auto saved = bests ? bests->find(name) : std::nullopt;
    const std::vector<SavedJson> values = saved ? saved->list(3) : std::vector<SavedJson>();
    if (saved) metric.best_is = static_cast<metrics::Means::BestIs>(values[0].integer(0, 2));
    if (name == judged_ && named_ && saved) refuse_the_worst({judged_, highest_}, metric.best_is);
    const bool judged_before = before && before->metric == name;
    if (name == judged_ || judged_before) {
      const bool highest = name == judged_ ? highest_ : before->highest;
      metric.best_is = highest ? metrics::Means::BestIs::highest : metrics::Means::BestIs::lowest;
      metric.best = metric.at_best;
      metric.best_step = metric.at_best_step;
    } else if (saved) {
      metric.best = values[1].number_or_nan();
      metric.best_step = values[2].integer(-1);
    } else {
      metric.knows_all = false;
    }
  }
}

void Scores::load_state(const SavedJson& trainer, const SavedJson& report) {
  without_gain_ = trainer["validations_without_gain"].integer(0);
  if (const auto best = trainer.find("early_stop_best")) early_stop_best_ = best->number_or_nan();
  for (const auto& [name, saved] : trainer["metrics"].members()) {
    metrics_[name] = metric_from(saved, std::numeric_limits<std::int64_t>::max());
  }
  if (const auto versions = report.find("metric_versions")) {
    for (const auto& [name, version] : versions->members())
      if (metrics_.find(name) != metrics_.end()) metrics_[name].version = static_cast<int>(version.integer(1, 1000));
  }
  load_bests(report);
  std::vector<std::string> order = {judged_};  // the order if the snapshot has none, because an earlier version wrote it
  if (const auto saved = report.find("metrics_order")) {
    order.clear();
    for (const SavedJson& name : saved->list()) order.push_back(name.text());
  }
  metrics_.put_in_order(order);
  best_.clear();
  const auto before = judge_in(report);
  const bool judges_anew = before && *before != Judge{judged_, highest_};
  if (const auto ranked = trainer.find("best"); ranked && !judges_anew) {
    for (const SavedJson& saved : ranked->list()) {
      const std::vector<SavedJson> values = saved.list(2);
      best_.push_back({values[0].number(), values[1].integer(0)});
    }
  } else if (const auto judged = metrics_.find(judged_);
             judged != metrics_.end() && judged->second.at_best_step >= 0 && std::isfinite(judged->second.at_best)) {
    best_.push_back({judged->second.at_best, judged->second.at_best_step});
  }
  if (judges_anew) {
    forgot_ = to_text(Judge{judged_, highest_}) + " now decides what is best, instead of " + to_text(*before) +
              ": early stopping starts anew, and " +
              (best_.empty() ? "none of the earlier validations counts"
                             : "only the earlier validation of step " + std::to_string(best_.front().step) + " counts (" +
                                   significant(best_.front().value, 4) + ")");
    early_stop_best_ = best_.empty() ? std::nan("") : best_.front().value;
    without_gain_ = 0;
  }
  if (best_.size() > keeps_) best_.resize(keeps_);
}

}  // namespace millrace
