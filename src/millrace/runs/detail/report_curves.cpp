#include "millrace/runs/detail/report_curves.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>

namespace millrace::runs {
namespace {

constexpr double kMostSteps = 1e15;

// The members of a step line that have no curve.
constexpr std::array<std::string_view, 9> kNoCurve = {"step", "epoch",       "samples", "time",    "skipped",
                                                      "kind", "cache_bytes", "seconds", "it_per_s"};

// The keys and titles of known curves. In a report, losses and metrics come before these curves.
struct Known {
  std::string_view key, title;
};
constexpr std::array<Known, 10> kKnown = {{{"lr", "learning rate"},
                                           {"grad_norm", "norm of the gradients"},
                                           {"spikes", "steps left out as spikes"},
                                           {"loss_scale", "loss scale"},
                                           {"step_ms_p50", "time of a step, ms (median)"},
                                           {"step_ms_p95", "time of a step, ms (95th percentile)"},
                                           {"cache_hit_rate", "samples from the cache"},
                                           {"data_wait", "share of time waiting for data"},
                                           {"others", "share of time with other programs"},
                                           {"host_ms", "host's time of a step, ms"}}};

enum class Rank : std::uint8_t { judged, loss, metric, machine, quiet };

using Values = std::map<double, double>;  // step -> value
struct Name {
  std::size_t run = 0;
  std::string member;  // member of a group; "" = the diagram shows a single metric
  std::string role;    // "train", "validation" or the name of an objective
  auto operator<=>(const Name&) const = default;
};
struct Diagram {
  Rank rank = Rank::metric;
  std::size_t order = 0;  // order of the diagram among the diagrams of the same rank
  std::map<Name, Values> series;
};
using Diagrams = std::map<std::string, Diagram>;  // diagrams by title

bool ends_with(std::string_view text, std::string_view end) { return text.size() > end.size() && text.ends_with(end); }

// Splits "generator.lr" into "lr" and "generator".
std::pair<std::string, std::string> without_objective(const std::string& key) {
  const auto dot = key.rfind('.');
  if (dot == std::string::npos) return {key, ""};
  const std::string last = key.substr(dot + 1);
  const bool known = std::ranges::any_of(kKnown, [&](const Known& each) { return each.key == last; });
  return known ? std::pair{last, key.substr(0, dot)} : std::pair{key, std::string()};
}

// The metric with this title. In validations, training's "loss" has the name "val_loss".
const MetricStory* metric_of(const Validations& validations, const std::string& title) {
  const MetricStory* const found = validations.find("val_" + title);
  return found != nullptr ? found : validations.find(title);
}

class Gathering {
 public:
  Gathering(Diagrams& to, std::size_t run, const Validations& validations) : to_(to), run_(run), validations_(validations) {}

  void add(const std::vector<Json>& lines) {
    for (const Json& line : lines) {
      if (!line.contains("kind") || !line["kind"].is_string()) continue;
      const auto kind = line["kind"].get<std::string>();
      const auto step = line.find("step");
      if (step == line.end() || !step->is_number() || std::abs(step->get<double>()) > kMostSteps) continue;
      if (kind == "start") forget_after(step->get<double>());
      if (kind == "step") add_step(line, step->get<double>());
      if (kind == "validation") add_validation(line, step->get<double>());
    }
  }

 private:
  static bool is_curve(const std::string& key, const Json& value) {
    const bool is_value = value.is_number() || value == "nan" || value == "inf" || value == "-inf";
    return is_value && std::ranges::find(kNoCurve, key) == kNoCurve.end();
  }

  // A value that was not finite is text in the log; it makes a gap in the curve.
  static double number_in(const Json& value) {
    return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
  }

  // Removes the values after `step`, because a process that resumes from a snapshot repeats the steps after it.
  void forget_after(double step) {
    for (auto& [title, diagram] : to_) {
      for (auto& [name, values] : diagram.series) {
        if (name.run == run_) values.erase(values.upper_bound(step), values.end());
      }
    }
  }

  void add_step(const Json& line, double step) {
    for (const auto& [key, value] : line.items()) {
      if (!is_curve(key, value)) continue;
      const auto [name, objective] = without_objective(key);
      const auto known = std::ranges::find(kKnown, name, &Known::key);
      if (known != kKnown.end()) {
        machine(static_cast<std::size_t>(known - kKnown.begin()), std::string(known->title), objective, step, value);
      } else if (ends_with(key, "_per_s")) {
        machine(4, key.substr(0, key.size() - 6) + " a second", "", step, value);
      } else if (key.starts_with("memory_")) {
        machine(20, "memory, bytes", key.substr(7), step, value);
      } else if (key.starts_with("train/")) {
        measured(Rank::metric, key.substr(6), "train", step, value);
      } else {
        measured(Rank::loss, key, "train", step, value);
      }
    }
    if (line.contains("shares") && line["shares"].is_object() && line["shares"].contains("data_wait")) {
      if (const Json& wait = line["shares"]["data_wait"]; wait.is_number())
        machine(7, "share of time waiting for data", "", step, wait);
    }
  }

  void add_validation(const Json& line, double step) {
    for (const auto& [key, value] : line.items()) {
      if (!is_curve(key, value)) continue;
      measured(Rank::metric, key.starts_with("val_") ? key.substr(4) : key, "validation", step, value);
    }
  }

  void machine(std::size_t order, const std::string& title, const std::string& series, double step, const Json& value) {
    Diagram& diagram = to_[title];
    diagram.rank = Rank::machine;
    diagram.order = order;
    diagram.series[{run_, "", series}][step] = number_in(value);
  }

  void measured(Rank rank, const std::string& title, const std::string& series, double step, const Json& value) {
    const auto [found, is_new] = to_.try_emplace(title);
    Diagram& diagram = found->second;
    if (is_new) {
      const MetricStory* const metric = metric_of(validations_, title);
      const std::size_t place = metric == nullptr ? to_.size() : static_cast<std::size_t>(metric - validations_.metrics.data());
      diagram.order = title == "loss" ? 0 : place + 1;
      if (metric != nullptr && metric->quiet) diagram.rank = Rank::quiet;
      if (metric != nullptr && metric->name == validations_.judged) diagram.rank = Rank::judged;
    }
    if (rank == Rank::loss && diagram.rank == Rank::metric) diagram.rank = Rank::loss;
    diagram.series[{run_, "", series}][step] = number_in(value);
  }

  Diagrams& to_;
  std::size_t run_;
  const Validations& validations_;
};

// The measures that a metrics board makes, by the last part of the metric's name. "left/r2" and "left/mae" are different
// measures, so they share no diagram. "recall/cat" and "recall/dog" are one measure of two classes, so they share a diagram.
constexpr std::array<std::string_view, 10> kMeasures = {
    "mae", "rmse", "r2", "pearson", "accuracy", "macro_f1", "balanced_accuracy", "units", "units_left_out", "units_below_0"};

constexpr std::string_view kOfAGroup = "/…";

// Joins metrics whose names differ only in the last part into one diagram, which has the common part as its name.
Diagrams with_groups(Diagrams all) {
  std::map<std::string, std::vector<std::string>> groups;
  for (const auto& [title, diagram] : all) {
    const auto slash = title.rfind('/');
    const bool can = slash != std::string::npos && slash > 0 && (diagram.rank == Rank::metric || diagram.rank == Rank::quiet);
    if (can && std::ranges::find(kMeasures, title.substr(slash + 1)) == kMeasures.end())
      groups[title.substr(0, slash)].push_back(title);
  }
  for (const auto& [name, titles] : groups) {
    const std::string title = name + std::string(kOfAGroup);
    if (titles.size() < 2 || all.contains(title)) continue;
    Diagram group{.rank = Rank::quiet, .order = all[titles.front()].order, .series = {}};
    for (const std::string& each : titles) {
      Diagram& diagram = all[each];
      group.rank = std::min(group.rank, diagram.rank);
      group.order = std::min(group.order, diagram.order);
      for (auto& [of, values] : diagram.series) group.series[{of.run, each.substr(name.size() + 1), of.role}] = std::move(values);
      all.erase(each);
    }
    all[title] = std::move(group);
  }
  return all;
}

// Gives each different text a number, in the order in which the texts first occur. The number selects a series' colour or dash.
class Places {
 public:
  int of(const std::string& text) { return places_.try_emplace(text, static_cast<int>(places_.size())).first->second; }

 private:
  std::map<std::string, int> places_;
};

// Draws a diagram's curve. With several runs, each run has a colour, and the series of a run have different dashes. With a
// single run, each series has a colour; in a group, each member has a colour.
report::Curve curve_of(const std::string& title, const Diagram& diagram, std::span<const Validations> validations,
                       std::span<const std::string> names) {
  report::Curve curve{.title = title, .series = {}, .is_metric = diagram.rank != Rank::loss && diagram.rank != Rank::machine};
  Places members, roles, dashes;
  std::set<std::string> known_roles;
  for (const auto& [name, values] : diagram.series) known_roles.insert(name.role);
  for (const auto& [name, values] : diagram.series) {
    report::Series series{.name = name.role, .points = {}};
    if (!name.member.empty()) series.name = name.member + (known_roles.size() > 1 ? ", " + name.role : "");
    series.run = static_cast<int>(name.run);
    if (names.size() > 1) {
      series.colour = series.run;
      series.dash = dashes.of(series.name);
    } else if (!name.member.empty()) {
      series.colour = members.of(name.member);
      series.dash = roles.of(name.role);
    }
    for (const auto& [step, value] : values) series.points.push_back({step, value});
    series.has_marks = name.role == "validation";
    const std::string whole = name.member.empty() ? title : title.substr(0, title.size() - kOfAGroup.size()) + "/" + name.member;
    if (const MetricStory* const metric = metric_of(validations[name.run], whole);
        metric != nullptr && diagram.rank != Rank::machine) {
      curve.rises = curve.rises || metric->best_is == metrics::Means::BestIs::highest;
      if (metric->name == validations[name.run].judged && metric->name.starts_with("val_") && !curve.rises)
        curve.is_metric = false;
      if (series.has_marks && metric->best) series.best = report::Point{metric->best->step, metric->best->value};
    }
    curve.series.push_back(std::move(series));
  }
  if (names.size() == 1 && validations.front().best) curve.best_step = validations.front().best->step;
  if (names.size() > 1) curve.runs.assign(names.begin(), names.end());
  return curve;
}

bool says_something(const report::Curve& curve) {
  return std::ranges::any_of(curve.series, [](const report::Series& series) {
    return std::ranges::any_of(series.points, [](const report::Point& point) { return std::isfinite(point.y) && point.y != 0; });
  });
}

}  // namespace

CurvesOfRuns curves_of(std::span<const RunStory> runs, std::span<const Validations> validations,
                       std::span<const std::string> names) {
  Diagrams diagrams;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Gathering gathering(diagrams, i, validations[i]);
    for (const auto& process : runs[i].processes) gathering.add(process);
  }
  diagrams = with_groups(std::move(diagrams));
  std::vector<std::pair<std::string, const Diagram*>> sorted;
  for (const auto& [title, diagram] : diagrams) sorted.emplace_back(title, &diagram);
  std::ranges::stable_sort(sorted, [](const auto& a, const auto& b) {
    return std::pair(a.second->rank, a.second->order) < std::pair(b.second->rank, b.second->order);
  });
  CurvesOfRuns curves;
  for (const auto& [title, diagram] : sorted) {
    report::Curve curve = curve_of(title, *diagram, validations, names);
    if (says_something(curve)) (diagram->rank == Rank::quiet ? curves.quiet : curves.shown).push_back(std::move(curve));
  }
  return curves;
}

}  // namespace millrace::runs
