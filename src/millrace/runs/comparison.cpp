#include "millrace/runs/comparison.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "millrace/base/format.h"

namespace millrace::runs {
namespace {

using Moment = RunFacts::Moment;

constexpr std::array<std::string_view, 2> kOnce = {"startup", "trials"};
// two numbers of samples per step count as equal if they differ by at most this share, because the last batch of an epoch may be
// smaller
constexpr double kSameBatch = 0.05;

bool is_once(const std::string& account) { return std::ranges::find(kOnce, account) != kOnce.end(); }

template <class Value>
std::optional<Value> at(const std::map<std::string, Value>& values, const std::string& name) {
  const auto found = values.find(name);
  return found == values.end() ? std::nullopt : std::optional(found->second);
}

template <class Value>
std::set<std::string> names_in(const std::map<std::string, Value>& a, const std::map<std::string, Value>& b) {
  std::set<std::string> names;
  for (const auto* each : {&a, &b}) {
    for (const auto& [name, value] : *each) names.insert(name);
  }
  return names;
}

enum class Origins { ignored, compared };

std::vector<Comparison::Difference> differences(const std::map<std::string, RunFacts::Setting>& a,
                                                const std::map<std::string, RunFacts::Setting>& b, Origins origins) {
  std::vector<Comparison::Difference> all;
  for (const std::string& key : names_in(a, b)) {
    const auto of_a = at(a, key);
    const auto of_b = at(b, key);
    const bool same = of_a && of_b && of_a->value == of_b->value && (origins == Origins::ignored || of_a->origin == of_b->origin);
    if (!same) all.push_back({key, of_a, of_b});
  }
  return all;
}

std::vector<Pair> pairs(const std::map<std::string, double>& a, const std::map<std::string, double>& b) {
  std::vector<Pair> all;
  for (const std::string& name : names_in(a, b)) all.push_back({name, at(a, name), at(b, name)});
  std::ranges::stable_sort(all, std::ranges::greater(),
                           [](const Pair& pair) { return std::max(pair.a.value_or(0), pair.b.value_or(0)); });
  return all;
}

double loop_of(const RunFacts& run) {
  double sum = 0;
  for (const auto& [name, seconds] : run.accounts) sum += is_once(name) ? 0 : seconds;
  return sum;
}

// The number by which this run's seconds are divided so that they are in `unit`. 0 = unknown; the accounts can't be compared
// then.
double divisor(const RunFacts& run, Unit unit) {
  if (unit == Unit::share) return loop_of(run);
  return unit == Unit::seconds_a_step ? run.steps : run.steps * run.samples_per_step;
}

std::map<std::string, double> in_unit(const RunFacts& run, Unit unit) {
  std::map<std::string, double> figures;
  const double by = divisor(run, unit);
  for (const auto& [name, seconds] : run.accounts) {
    if (by > 0 && !is_once(name)) figures[name] = seconds / by;
  }
  return figures;
}

bool is_other_batch(const RunFacts& a, const RunFacts& b) {
  if (a.samples_per_step <= 0 || b.samples_per_step <= 0) return false;
  return std::abs(a.samples_per_step - b.samples_per_step) > kSameBatch * std::max(a.samples_per_step, b.samples_per_step);
}

void add_times(const RunFacts& a, const RunFacts& b, Comparison& to) {
  to.unit = a.recipe != b.recipe ? Unit::share : is_other_batch(a, b) ? Unit::seconds_a_sample : Unit::seconds_a_step;
  to.accounts = pairs(in_unit(a, to.unit), in_unit(b, to.unit));
  std::erase_if(to.accounts, [](const Pair& pair) { return pair.a.value_or(0) <= 0 && pair.b.value_or(0) <= 0; });
  to.loop.name = "all of it";
  const auto loop = [&](const RunFacts& run) {
    const double by = divisor(run, to.unit);
    return by > 0 && !run.accounts.empty() ? std::optional(loop_of(run) / by) : std::nullopt;
  };
  to.loop.a = loop(a);
  to.loop.b = loop(b);
  for (const std::string_view name : kOnce) {
    const Pair pair{std::string(name), at(a.accounts, std::string(name)), at(b.accounts, std::string(name))};
    if (pair.a || pair.b) to.once.push_back(pair);
  }
  to.step_ms = {"ms a step, median", a.step_ms, b.step_ms};
}

double last_step(const RunFacts& run) {
  double step = 0;
  for (const auto& [name, moments] : run.quality) step = std::max(step, moments.empty() ? 0 : moments.back().step);
  return step;
}

double last_second(const RunFacts& run) {
  double seconds = 0;
  for (const auto& [name, moments] : run.quality) seconds = std::max(seconds, moments.empty() ? 0 : moments.back().seconds);
  return seconds;
}

std::optional<Moment> latest(const RunFacts& run, const std::string& name, double Moment::*axis, double most) {
  const auto moments = at(run.quality, name);
  std::optional<Moment> found;
  for (const Moment& moment : moments.value_or(std::vector<Moment>())) {
    if (moment.*axis <= most) found = moment;
  }
  return found;
}

// Returns the last step at which both runs have a value of this name, or `otherwise` if there is no such step.
double common_step(const RunFacts& a, const RunFacts& b, const std::string& name, double otherwise) {
  std::set<double> steps;
  for (const Moment& moment : at(a.quality, name).value_or(std::vector<Moment>())) steps.insert(moment.step);
  double common = -1;
  for (const Moment& moment : at(b.quality, name).value_or(std::vector<Moment>())) {
    if (steps.contains(moment.step)) common = std::max(common, moment.step);
  }
  return common < 0 ? otherwise : common;
}

void add_quality(const RunFacts& a, const RunFacts& b, Comparison& to) {
  if (a.recipe != b.recipe) return;
  to.step = std::min(last_step(a), last_step(b));
  to.seconds = std::min(last_second(a), last_second(b));
  for (const std::string& name : names_in(a.quality, b.quality)) {
    const double step = common_step(a, b, name, to.step);
    to.at_step.push_back({name, latest(a, name, &Moment::step, step), latest(b, name, &Moment::step, step)});
    to.at_time.push_back({name, latest(a, name, &Moment::seconds, to.seconds), latest(b, name, &Moment::seconds, to.seconds)});
  }
}

// Adds a note about metrics whose definition was corrected between the two runs.
void add_versions(Comparison& to) {
  constexpr std::size_t kMost = 3;
  std::vector<std::string> names;
  for (const Comparison::QualityPair& each : to.at_step) {
    if (each.a && each.b && each.a->version != each.b->version)
      names.push_back(printable(each.name) + " (A: version " + std::to_string(each.a->version) + ", B: version " +
                      std::to_string(each.b->version) + ")");
  }
  if (names.empty()) return;
  const std::size_t more = names.size() > kMost ? names.size() - kMost : 0;
  names.resize(names.size() - more);
  to.notes.push_back(
      "these metrics are not the same measure in both runs: " + joined(names, ", ") +
      (more > 0 ? " and " + std::to_string(more) + " more" : "") +
      "; their values can't be compared, and CHANGELOG.md says what each version changed. Measure the older run again with "
      "millrace eval --from RUN");
}

void add_notes(const RunFacts& a, const RunFacts& b, Comparison& to) {
  if (to.unit == Unit::share) {
    to.notes.push_back("the recipes differ (" + printable(a.recipe) + ", " + printable(b.recipe) +
                       "): their step times, losses and metrics can't be compared. Still comparable: "
                       "config, machine and versions, the shares of the time, memory");
  }
  if (to.unit == Unit::seconds_a_sample) {
    to.notes.push_back("a step of A holds " + significant(a.samples_per_step, 3) + " samples, a step of B " +
                       significant(b.samples_per_step, 3) +
                       ", so times are given per sample; at the same step the runs have seen different numbers of samples");
  }
  add_versions(to);
  if (to.data && to.knows_data && to.unit != Unit::share)
    to.notes.emplace_back("the data differs: losses and metrics are of different samples");
  for (const auto& [run, name] : {std::pair{&a, "A"}, std::pair{&b, "B"}}) {
    if (run->others.value_or(0) >= kBusy) {
      to.notes.push_back("other programs used the cores for " + percent(*run->others) + " of the time of " + name +
                         ": alone on the machine " + name + " would be faster");
    }
    if (run->accounts.empty() || run->steps <= 0)
      to.notes.push_back(std::string(name) +
                         " has no record of where its time went, because it is an older run or ended before its first log line");
  }
}

Json to_json(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

Json to_json(const std::optional<RunFacts::Setting>& setting) {
  return setting ? Json{{"value", setting->value}, {"origin", setting->origin}} : Json();
}

Json to_json(const std::vector<Comparison::Difference>& all) {
  Json json = Json::array();
  for (const Comparison::Difference& each : all)
    json.push_back({{"key", each.key}, {"a", to_json(each.a)}, {"b", to_json(each.b)}});
  return json;
}

Json to_json(const Pair& pair) {
  const bool has_ratio = pair.a && pair.b && *pair.a > 0;
  return {{"name", pair.name},
          {"a", to_json(pair.a)},
          {"b", to_json(pair.b)},
          {"ratio", has_ratio ? Json(*pair.b / *pair.a) : Json()}};
}

Json to_json(const std::vector<Pair>& all) {
  Json json = Json::array();
  for (const Pair& each : all) json.push_back(to_json(each));
  return json;
}

Json to_json(const std::vector<Comparison::QualityPair>& all) {
  const auto of = [](const std::optional<Moment>& at) {
    return at ? Json{{"step", at->step}, {"seconds", at->seconds}, {"value", at->value}} : Json();
  };
  Json json = Json::array();
  for (const Comparison::QualityPair& each : all) json.push_back({{"name", each.name}, {"a", of(each.a)}, {"b", of(each.b)}});
  return json;
}

std::string_view word_of(Unit unit) {
  return unit == Unit::share ? "share" : unit == Unit::seconds_a_step ? "seconds_a_step" : "seconds_a_sample";
}

}  // namespace

Comparison compare(const RunFacts& a, const RunFacts& b) {
  Comparison result;
  result.config = differences(a.config, b.config, Origins::ignored);
  result.plan = differences(a.plan, b.plan, Origins::ignored);
  result.machine = differences(a.machine, b.machine, Origins::compared);
  result.knows_data = !a.data.empty() && !b.data.empty();
  if (a.data != b.data) {
    const auto known = [](const std::string& text) {
      return text.empty() ? std::nullopt : std::optional(RunFacts::Setting{text, ""});
    };
    result.data = Comparison::Difference{"data", known(a.data), known(b.data)};
  }
  add_times(a, b, result);
  result.memory = pairs(a.memory, b.memory);
  add_quality(a, b, result);
  add_notes(a, b, result);
  result.explanation = explain(a, b, result);
  return result;
}

Json to_json(const Comparison& comparison, const RunFacts& a, const RunFacts& b) {
  const auto head = [](const RunFacts& run) {
    return Json{{"run", run.folder},  {"recipe", run.recipe}, {"preset", run.preset},
                {"state", run.state}, {"steps", run.steps},   {"findings", run.findings}};
  };
  const Comparison::Explanation& why = comparison.explanation;
  return {{"a", head(a)},
          {"b", head(b)},
          {"notes", comparison.notes},
          {"config", to_json(comparison.config)},
          {"plan", to_json(comparison.plan)},
          {"machine", to_json(comparison.machine)},
          {"data",
           {{"known", comparison.knows_data},
            {"differs", comparison.knows_data ? Json(comparison.data.has_value()) : Json()},
            {"a", a.data},
            {"b", b.data}}},
          {"unit", word_of(comparison.unit)},
          {"loop", to_json(comparison.loop)},
          {"accounts", to_json(comparison.accounts)},
          {"once", to_json(comparison.once)},
          {"step_ms", to_json(comparison.step_ms)},
          {"memory", to_json(comparison.memory)},
          {"at_step", {{"step", comparison.step}, {"values", to_json(comparison.at_step)}}},
          {"at_time", {{"seconds", comparison.seconds}, {"values", to_json(comparison.at_time)}}},
          {"explanation",
           {{"text", why.text},
            {"slower", why.slower},
            {"account", why.account},
            {"explained", why.explained},
            {"rule", why.rule},
            {"of", why.of}}}};
}

}  // namespace millrace::runs
