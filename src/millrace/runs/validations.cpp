#include "millrace/runs/validations.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "millrace/base/foreign_json.h"
#include "millrace/train/report/scores.h"

namespace millrace::runs {
namespace {

using BestIs = metrics::Means::BestIs;

constexpr std::array<std::string_view, 5> kNotMeasured = {"step", "time", "seconds", "it_per_s", "epoch"};
constexpr double kLargestStep = 1e15;  // larger steps are ignored, because a file of another program may hold any number

struct Measured {
  std::map<double, double> by_step;  // value by step; NaN for a value that was not finite
  std::int64_t version = 1;
};

// What the run's files say about its metrics.
struct Described {
  std::string judged;
  std::vector<std::string> order;
  std::map<std::string, BestIs> best_is;
  std::map<std::string, bool> quiet;
};

// True for "val_loss", but not for its term "val_loss/pixels".
bool is_loss(std::string_view name) { return name.starts_with("val_") && name.find('/') == std::string_view::npos; }

BestIs direction_of(const std::string& word) {
  if (word == "highest") return BestIs::highest;
  return word == "lowest" ? BestIs::lowest : BestIs::unknown;
}

// Reads the description from the log's last line of kind "metrics"; a run of an earlier version has no such line.
Described described_in_log(const RunStory& run) {
  Described all;
  for (const auto& lines : run.processes) {
    for (const Json& line : lines) {
      if (text_at(line, {"kind"}) != "metrics") continue;
      all = {.judged = text_at(line, {"judged"}), .order = {}, .best_is = {}, .quiet = {}};
      for (const Json& name : line.value("order", Json::array()))
        if (name.is_string()) all.order.push_back(name.get<std::string>());
      for (const Json& name : line.value("quiet", Json::array()))
        if (name.is_string()) all.quiet[name.get<std::string>()] = true;
      const Json directions = line.value("best_is", Json::object());
      for (const auto& [name, word] : directions.items())
        if (word.is_string()) all.best_is[name] = direction_of(word.get<std::string>());
    }
  }
  return all;
}

Described described_of(const RunStory& run) {
  Described all = described_in_log(run);
  if (!all.order.empty()) return all;
  const Run files(run.folder);
  all.order = metrics_in_order(run.summary);
  for (const std::string& name : all.order) {
    const Json& metric = run.summary["metrics"][name];
    if (metric.is_object() && metric.contains("quiet")) all.quiet[name] = true;
    if (is_loss(name) && all.judged.empty()) all.judged = name;
  }
  const std::string named = text_at(files.config(), {"values", "snapshot", "best_metric"});
  if (!named.empty()) all.judged = named;
  if (!all.judged.empty())
    all.best_is[all.judged] =
        text_at(files.config(), {"values", "snapshot", "best_is"}) == "highest" ? BestIs::highest : BestIs::lowest;
  return all;
}

class Gathered {
 public:
  explicit Gathered(const RunStory& run) {
    for (const auto& lines : run.processes) {
      for (const Json& line : lines) add(line);
    }
  }

  std::map<std::string, Measured> all;

 private:
  void add(const Json& line) {
    const std::string kind = text_at(line, {"kind"});
    const auto step = number_at(line, {"step"});
    if (!step || std::abs(*step) > kLargestStep) return;
    if (kind == "start") {
      for (auto& [name, values] : all) values.by_step.erase(values.by_step.upper_bound(*step), values.by_step.end());
    }
    if (kind != "validation") return;
    for (const auto& [name, value] : line.items()) {
      if (std::ranges::find(kNotMeasured, name) != kNotMeasured.end()) continue;
      const bool is_text = value.is_string() && name != "kind";
      if (value.is_number() || is_text) put(line, name, *step, is_text ? std::nan("") : value.get<double>());
    }
  }

  void put(const Json& line, const std::string& name, double step, double value) {
    const std::int64_t version = std::max<std::int64_t>(count_at(line, {"metric_versions", name.c_str()}), 1);
    Measured& values = all[name];
    if (values.version != version) values.by_step.clear();
    values.version = version;
    values.by_step[step] = value;
  }
};

// The best value from step `first` on. A validation before the first step does not count for the judged metric, see
// Scores::record.
std::optional<MetricStory::Moment> best_of(const Measured& values, BestIs best_is, double first) {
  std::optional<MetricStory::Moment> best;
  for (const auto& [step, value] : values.by_step) {
    if (best_is == BestIs::unknown || !std::isfinite(value) || step < first) continue;
    if (!best || (best_is == BestIs::highest ? value > best->value : value < best->value)) best = {.step = step, .value = value};
  }
  return best;
}

std::optional<double> finite_at(const Measured& values, double step) {
  const auto found = values.by_step.find(step);
  return found != values.by_step.end() && std::isfinite(found->second) ? std::optional(found->second) : std::nullopt;
}

}  // namespace

const MetricStory* Validations::find(std::string_view name) const {
  const auto found = std::ranges::find(metrics, name, &MetricStory::name);
  return found == metrics.end() ? nullptr : &*found;
}

Validations validations_of(const RunStory& run) {
  const Gathered gathered(run);
  Described described = described_of(run);
  Validations validations;
  for (const auto& [name, values] : gathered.all) {
    if (std::ranges::find(described.order, name) == described.order.end()) described.order.push_back(name);
    if (is_loss(name) && described.judged.empty()) described.judged = name;
    if (name.starts_with("val_")) described.best_is.try_emplace(name, BestIs::lowest);
  }
  std::stable_partition(described.order.begin(), described.order.end(),
                        [&](const std::string& name) { return name == described.judged; });
  if (const auto judged = gathered.all.find(described.judged); judged != gathered.all.end()) {
    validations.judged = described.judged;
    validations.best = best_of(judged->second, described.best_is[described.judged], 1);
  }
  for (const std::string& name : described.order) {
    const auto found = gathered.all.find(name);
    if (found == gathered.all.end() || found->second.by_step.empty()) continue;
    MetricStory metric{.name = name, .quiet = described.quiet.contains(name), .best_is = described.best_is[name]};
    metric.best = best_of(found->second, metric.best_is, name == described.judged ? 1 : 0);
    if (validations.best) metric.at_best = finite_at(found->second, validations.best->step);
    metric.last = finite_at(found->second, found->second.by_step.rbegin()->first);
    validations.metrics.push_back(std::move(metric));
  }
  return validations;
}

}  // namespace millrace::runs
