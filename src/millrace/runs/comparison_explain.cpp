#include <algorithm>
#include <cmath>

#include "millrace/base/foreign_json.h"
#include "millrace/base/format.h"
#include "millrace/base/median.h"
#include "millrace/doctor/rules.h"
#include "millrace/runs/comparison.h"

namespace millrace::runs {
namespace {

constexpr double kSame = 0.03;  // share of the time by which two runs of the same config may differ
constexpr double kSameWhenShort = 0.10;
constexpr double kShort = 60;      // seconds of the loop; a shorter run may differ more
constexpr std::size_t kLines = 4;  // with fewer log lines than this, the spread of a run is unknown
constexpr double kPart = 0.15;     // a finding explains a difference only if the excess of its account is at least this share of
                                   // the difference
constexpr std::size_t kMostKeys = 5;  // a text names at most this number of config keys

struct Side {
  const RunFacts* run;
  std::string name, id;  // name: "A"; id: "a"
  double loop;           // time of the loop, in the unit of the comparison
};

// How much the times of a run's log lines differ: their interquartile range, divided by their median. 0 if there are too few
// lines.
double spread_of(const RunFacts& run) {
  if (run.line_ms.size() < kLines) return 0;
  std::vector<double> sorted = run.line_ms;
  std::ranges::sort(sorted);
  const std::size_t quarter = sorted.size() / 4;
  const double middle = median(sorted);
  return middle > 0 ? (sorted[sorted.size() - 1 - quarter] - sorted[quarter]) / middle : 0;
}

double seconds_of(const Side& side, Unit unit) {
  return side.loop * side.run->steps * (unit == Unit::seconds_a_sample ? side.run->samples_per_step : 1);
}

// The share of the time by which the two runs may differ by chance.
double noise_of(const Side& a, const Side& b, Unit unit) {
  const bool is_short = std::min(seconds_of(a, unit), seconds_of(b, unit)) < kShort;
  return std::max({is_short ? kSameWhenShort : kSame, spread_of(*a.run), spread_of(*b.run)});
}

std::string time_text(double value, Unit unit) {
  return significant(value * 1e3, 3) + (unit == Unit::seconds_a_sample ? " ms a sample" : " ms a step");
}

// The gain of a finding; NaN if the finding has none.
double gain_in(const Json& finding) {
  const auto found = finding.find("gain");
  return found != finding.end() && found->is_number() ? found->get<double>() : std::nan("");
}

bool has_finding(const RunFacts& run, const std::string& rule) {
  return run.findings.is_array() &&
         std::ranges::any_of(run.findings, [&](const Json& each) { return text_at(each, {"id"}) == rule; });
}

bool takes_time_in(const std::string& rule, const std::string& account) {
  const auto row = std::ranges::find(doctor::rules(), rule, &doctor::Rule::id);
  return row != doctor::rules().end() && std::ranges::count(row->accounts, account) > 0;
}

// Returns the finding of the slower run that best explains the account: if possible one that the faster run does not have; among
// several, the one with the largest gain.
const Json* finding_for(const std::string& account, const Side& slow, const Side& fast) {
  const Json* best = nullptr;
  const auto rank = [&](const Json& finding) {
    const double gain = gain_in(finding);
    return std::pair(!has_finding(*fast.run, text_at(finding, {"id"})), std::isfinite(gain) ? gain : 0.0);
  };
  if (!slow.run->findings.is_array()) return nullptr;
  for (const Json& finding : slow.run->findings) {
    if (!takes_time_in(text_at(finding, {"id"}), account)) continue;
    if (best == nullptr || rank(finding) > rank(*best)) best = &finding;
  }
  return best;
}

std::string finding_text(const Json& finding, const std::string& account, const Side& slow, const Side& fast,
                         const Comparison& figures) {
  const std::string rule = text_at(finding, {"id"});
  std::string text = "finding " + printable(rule) + " of " + slow.name + " explains " + printable(account) + ": " +
                     printable(text_at(finding, {"what"}));
  const std::string key = text_at(finding, {"key"});
  const auto difference = std::ranges::find(figures.config, key, &Comparison::Difference::key);
  if (!key.empty() && difference != figures.config.end()) {
    const auto value = [](const std::optional<RunFacts::Setting>& setting) {
      return setting ? printable(setting->value) : "not there";
    };
    text += "; " + printable(key) + " is " + value(difference->a) + " in A and " + value(difference->b) + " in B";
  } else if (!text_at(finding, {"remedy"}).empty()) {
    text += "; " + printable(text_at(finding, {"remedy"}));
  }
  if (const double gain = gain_in(finding); gain > 0 && gain < 1) {
    text += "; without this finding " + slow.name + " was predicted to take " + time_text(slow.loop * (1 - gain), figures.unit) +
            ", while " + fast.name + " takes " + time_text(fast.loop, figures.unit);
  }
  if (has_finding(*fast.run, rule)) text += "; " + fast.name + " has the same finding, but to a lesser degree";
  return text;
}

std::string without_finding(const Side& slow, const Comparison& figures) {
  std::string text =
      slow.run->findings.is_null() ? "no findings were recorded in " + slow.name : "no finding of " + slow.name + " explains it";
  std::vector<std::string> keys;
  for (const auto* all : {&figures.config, &figures.plan, &figures.machine}) {
    for (const Comparison::Difference& each : *all) {
      const std::string key = printable(each.key);
      if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
    }
  }
  if (keys.empty()) return text + ", and their files show no difference";
  const std::size_t more = keys.size() > kMostKeys ? keys.size() - kMostKeys : 0;
  keys.resize(keys.size() - more);
  return text + "; what differs: " + joined(keys, ", ") + (more > 0 ? " and " + std::to_string(more) + " more" : "");
}

}  // namespace

Comparison::Explanation explain(const RunFacts& a, const RunFacts& b, const Comparison& figures) {
  if (figures.unit == Unit::share) return {.text = "different recipes do different work, so neither run counts as slower"};
  if (!figures.loop.a || !figures.loop.b)
    return {.text = "it is unknown why one run is slower, because at least one of them has no record of where its time went"};
  const Side of_a{&a, "A", "a", *figures.loop.a};
  const Side of_b{&b, "B", "b", *figures.loop.b};
  const Side& slow = of_a.loop > of_b.loop ? of_a : of_b;
  const Side& fast = of_a.loop > of_b.loop ? of_b : of_a;
  if (const double noise = noise_of(of_a, of_b, figures.unit); slow.loop - fast.loop <= noise * slow.loop)
    return {.text = "both take the same time within " + std::string(noise > kSame ? "the noise, " : "") + percent(noise) + ": " +
                    time_text(of_a.loop, figures.unit) + " in A, " + time_text(of_b.loop, figures.unit) + " in B"};
  const auto excess = [&](const Pair& pair) { return (pair.b.value_or(0) - pair.a.value_or(0)) * (slow.id == "b" ? 1 : -1); };
  std::vector<Pair> accounts = figures.accounts;
  std::ranges::stable_sort(accounts, std::ranges::greater(), excess);
  Comparison::Explanation why{.text = slow.name + " is slower: " + time_text(slow.loop, figures.unit) + ", " + fast.name + " " +
                                      time_text(fast.loop, figures.unit) + ". The largest difference is in " +
                                      printable(accounts.front().name) + ": " +
                                      time_text(excess(accounts.front()), figures.unit) + ". ",
                              .slower = slow.id,
                              .account = accounts.front().name};
  std::string reason = without_finding(slow, figures);
  for (const Pair& account : accounts) {
    if (excess(account) < kPart * (slow.loop - fast.loop)) break;
    const Json* finding = finding_for(account.name, slow, fast);
    if (finding == nullptr) continue;
    why.rule = text_at(*finding, {"id"});
    why.of = slow.id;
    why.explained = account.name;
    reason = finding_text(*finding, account.name, slow, fast, figures);
    break;
  }
  reason[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(reason[0])));
  why.text += reason;
  return why;
}

}  // namespace millrace::runs
