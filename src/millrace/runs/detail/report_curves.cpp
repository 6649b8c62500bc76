#include "millrace/runs/detail/report_curves.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace millrace::runs {
namespace {

constexpr double kMostSteps = 1e15;

// The members of a step line that get no curve.
constexpr std::array<std::string_view, 9> kNoCurve = {"step", "epoch",       "samples", "time",    "skipped",
                                                      "kind", "cache_bytes", "seconds", "it_per_s"};

// The titles of known curves; losses and metrics come before them.
struct Known {
  std::string_view key, title;
};
constexpr std::array<Known, 9> kKnown = {{{"lr", "learning rate"},
                                          {"grad_norm", "norm of the gradients"},
                                          {"spikes", "steps left out as spikes"},
                                          {"loss_scale", "loss scale"},
                                          {"step_ms_p50", "time of a step, ms (median)"},
                                          {"step_ms_p95", "time of a step, ms (95 of 100)"},
                                          {"cache_hit_rate", "samples from the cache"},
                                          {"data_wait", "share of waiting for data"},
                                          {"others", "share of other programs"}}};

enum Rank : int { kLoss, kMetric, kMachine };

struct Key {
  int rank = kMetric;
  std::size_t order = 0;  // place among the curves of equal rank
  std::string title;
  auto operator<=>(const Key&) const = default;
};

using Values = std::map<double, double>;  // step -> value
struct Name {
  std::size_t run = 0;
  std::string text;
  auto operator<=>(const Name&) const = default;
};
using Named = std::map<Name, Values>;  // the curves of a diagram, by name
struct Diagrams {
  std::map<std::string, std::size_t> seen;  // title -> order of its first appearance
  std::map<Key, Named> all;
};

bool ends_with(std::string_view text, std::string_view end) { return text.size() > end.size() && text.ends_with(end); }

// Splits "generator.lr" into "lr" and "generator".
std::pair<std::string, std::string> without_objective(const std::string& key) {
  const auto dot = key.rfind('.');
  if (dot == std::string::npos) return {key, ""};
  const std::string last = key.substr(dot + 1);
  const bool known = std::ranges::any_of(kKnown, [&](const Known& each) { return each.key == last; });
  return known ? std::pair{last, key.substr(0, dot)} : std::pair{key, std::string()};
}

class Gathering {
 public:
  Gathering(Diagrams& to, std::size_t run) : to_(to), run_(run) {}

  void add(const std::vector<Json>& lines) {
    for (const Json& line : lines) {
      if (!line.contains("kind") || !line["kind"].is_string()) continue;
      const auto kind = line["kind"].get<std::string>();
      const auto step = line.find("step");
      if (step == line.end() || !step->is_number() || std::abs(step->get<double>()) > kMostSteps) continue;
      if (kind == "step") add_step(line, step->get<double>());
      if (kind == "validation") add_validation(line, step->get<double>());
    }
  }

 private:
  static bool is_curve(const std::string& key, const Json& value) {
    return value.is_number() && std::ranges::find(kNoCurve, key) == kNoCurve.end();
  }

  void add_step(const Json& line, double step) {
    for (const auto& [key, value] : line.items()) {
      if (!is_curve(key, value)) continue;
      const auto [name, objective] = without_objective(key);
      const auto known = std::ranges::find(kKnown, name, &Known::key);
      if (known != kKnown.end()) {
        put({kMachine, static_cast<std::size_t>(known - kKnown.begin()), std::string(known->title)}, objective, step, value);
      } else if (ends_with(key, "_per_s")) {
        put({kMachine, 4, key.substr(0, key.size() - 6) + " a second"}, "", step, value);
      } else if (key.starts_with("memory_")) {
        put({kMachine, 20, "memory, bytes"}, key.substr(7), step, value);
      } else if (key.starts_with("train/")) {
        put(metric(key.substr(6)), "train", step, value);
      } else {
        put(loss(key), "train", step, value);
      }
    }
    if (line.contains("shares") && line["shares"].is_object() && line["shares"].contains("data_wait")) {
      if (const Json& wait = line["shares"]["data_wait"]; wait.is_number())
        put({kMachine, 7, "share of waiting for data"}, "", step, wait);
    }
  }

  void add_validation(const Json& line, double step) {
    for (const auto& [key, value] : line.items()) {
      if (!is_curve(key, value)) continue;
      if (key.starts_with("val_"))
        put(loss(key.substr(4)), "validation", step, value);
      else
        put(metric(key), "validation", step, value);
    }
  }

  Key loss(const std::string& name) { return {kLoss, order_of(name), name}; }
  Key metric(const std::string& name) { return {kMetric, order_of(name), name}; }
  std::size_t order_of(const std::string& name) {
    return to_.seen.try_emplace(name, name == "loss" ? 0 : to_.seen.size() + 1).first->second;
  }

  void put(const Key& key, const std::string& series, double step, const Json& value) {
    to_.all[key][{run_, series}][step] = value.get<double>();
  }

  Diagrams& to_;
  std::size_t run_;
};

// If there are several runs, each run has a colour and its curves differ in their dashes; the curves of a single run differ in
// colour.
report::Curve curve_of(const std::string& title, const Named& named, std::span<const RunStory> runs) {
  report::Curve curve{.title = title, .series = {}};
  std::size_t before = 0;
  int dash = 0;
  for (const auto& [name, values] : named) {
    report::Series series{.name = name.text, .points = {}};
    if (runs.size() > 1) {
      dash = !curve.series.empty() && name.run == before ? dash + 1 : 0;
      before = name.run;
      series.name = runs[name.run].folder.filename().string() + (name.text.empty() ? "" : " " + name.text);
      series.colour = static_cast<int>(name.run);
      series.dash = dash;
    }
    for (const auto& [step, value] : values) series.points.push_back({step, value});
    curve.series.push_back(std::move(series));
  }
  return curve;
}

}  // namespace

std::vector<report::Curve> curves_of(std::span<const RunStory> runs) {
  Diagrams diagrams;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Gathering gathering(diagrams, i);
    for (const auto& process : runs[i].processes) gathering.add(process);
  }
  std::vector<report::Curve> curves;
  for (const auto& [key, named] : diagrams.all) {
    report::Curve curve = curve_of(key.title, named, runs);
    const bool says_something = std::ranges::any_of(curve.series, [](const report::Series& series) {
      return std::ranges::any_of(series.points, [](const report::Point& point) { return point.y != 0; });
    });
    if (says_something) curves.push_back(std::move(curve));
  }
  return curves;
}

}  // namespace millrace::runs
