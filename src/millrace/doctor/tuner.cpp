#include "millrace/doctor/tuner.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <numeric>

#include "millrace/base/format.h"
#include "millrace/base/median.h"

namespace millrace::doctor {
namespace {

constexpr double kBusy = 0.1;                            // if other programs use this share of the cores, a run does not count
constexpr int kMostBusy = 3;                             // after this many runs that do not count, the candidate is given up
constexpr std::size_t kMostRuns = 6, kMostOfLittle = 4;  // the most valid runs of a candidate; kMostOfLittle: of a candidate
                                                         // with little expected gain
constexpr double kLittle = 0.1;
constexpr std::int64_t kMostRows = 8;  // largest batch to try, in multiples of the config's; more changes the training too much
constexpr std::size_t kPool = 4;       // a candidate is compared with this many runs of the baseline
constexpr int kBetween = 2;            // number of runs with candidates between two runs of the baseline
constexpr double kClear = 0.35;        // if log(ratio) is at least this, a single run is enough for a decision
constexpr double kNoise = 0.03;        // standard deviation of log(time) that is assumed at first, as if kNoiseRuns runs gave it
constexpr double kNoiseRuns = 3;
constexpr double kOutlier = 3;  // a larger deviation, in standard deviations, shows a disturbed run and is cut to this value
// Limits of the gain in standard errors. kProof is larger than kLastProof, because it is applied again after each pair of runs
// except the last.
constexpr double kProof = 2.7, kLastProof = 2, kDisproof = 1.5;
constexpr std::size_t kHopeless = 3;   // if the mean gain of this many runs is below half of `worth`, the trial ends
constexpr double kTryAgain = 1.2;      // a candidate is tried again if its expected gain grew by this factor
constexpr double kWithoutProof = 0.5;  // without a finding, the expected gain is this share of the gain that the accounts allow

using Words = std::vector<std::string>;

std::optional<std::int64_t> number(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Words to_auto(const std::string& now) { return now == "auto" ? Words{} : Words{"auto"}; }

Words times(const std::string& now, std::initializer_list<std::int64_t> factors, std::int64_t most = std::int64_t{1} << 40) {
  const auto value = number(now);
  Words words;
  if (!value || *value <= 0) return words;
  for (const std::int64_t factor : factors) {
    if (*value * factor <= most) words.push_back(std::to_string(*value * factor));
  }
  return words;
}

Words readers(const std::string& now) {
  const auto value = number(now);
  if (!value) return {"2", "4"};
  return {"auto", std::to_string(std::max<std::int64_t>(2, 2 * *value))};
}

Words caches(const std::string& now) {
  if (now == "auto") return {"disk"};
  return now == "off" ? Words{"auto", "disk"} : Words{"auto"};
}

Words one(const std::string& now) { return number(now).value_or(1) > 1 ? Words{"1"} : Words{}; }
Words blocks(const std::string& now) { return now == "auto" || now == "none" || now.empty() ? Words{} : Words{"none"}; }
Words formats(const std::string& now) { return now == "fp32" ? Words{"bf16"} : Words{}; }
Words larger(const std::string& now) { return times(now, {2, 4}); }
Words deeper(const std::string& now) { return times(now, {4}, 64); }
Words seldom(const std::string& now) { return times(now, {10}); }
Words nothing(const std::string& now) { return now.empty() || now == "[]" ? Words{} : Words{"[]"}; }

// A key that the tuner may set.
struct Knob {
  std::string_view key;
  std::string_view accounts;  // the accounts of time that the key can shorten, separated by blanks
  double most = 1;
  std::string_view needs;
  Words (*values)(const std::string& now);
  bool at_once = true;  // true: the key can do no great harm, so it may be tried together with others before it is tried alone
};
constexpr std::string_view kStep = "forward backward optimizer prepare";
constexpr std::array kKnobs = {
    Knob{"data.workers", "data_wait", 1, "", readers},
    Knob{"data.cache", "data_wait", 1, "", caches},
    Knob{"data.prefetch", "data_wait", 0.5, "", deeper, false},
    Knob{"device.threads", kStep, 0.75, "", to_auto},
    Knob{"device.layout", kStep, 0.5, "", to_auto},
    Knob{"device.kernels", kStep, 0.5, "", to_auto},
    Knob{"train.off", "forward backward optimizer prepare data_wait", 0.75, "", nothing},
    Knob{"optim.fused", "optimizer", 1, "", to_auto},
    Knob{"memory.recompute", "backward", 0.5, "", blocks},
    Knob{"memory.micro_batches", kStep, 0.5, "accumulation", one},
    Knob{"log.every", "log metrics", 1, "", seldom},
    Knob{"snapshot.every_steps", "snapshot", 1, "", seldom},
    Knob{"snapshot.every_epochs", "snapshot", 1, "", seldom},
    Knob{"precision.dtype", "forward backward", 0.6, "precision", formats},
    Knob{"data.batch_size", kStep, 0.5, "batch_size", larger},
};

const std::set<std::string> kAgainstWaiting = {"data.workers", "data.cache", "data.prefetch"};

double share_of(const ShortRun& run, std::string_view accounts) {
  double sum = 0;
  for (std::size_t at = 0; at <= accounts.size();) {
    const std::size_t end = std::min(accounts.find(' ', at), accounts.size());
    const auto share = run.shares.find(std::string(accounts.substr(at, end - at)));
    if (share != run.shares.end()) sum += share->second;
    at = end + 1;
  }
  return sum;
}

Settings with(Settings settings, const Settings& more) {
  for (const auto& [key, value] : more) settings[key] = value;
  return settings;
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double square(double value) { return value * value; }

// Decides about a candidate from log(time) of the runs without and with it. Differences are counted in standard errors, which
// follow from `deviation`, the standard deviation of a single log(time). nullopt: undecided, another run is needed.
std::optional<Trial::Verdict> verdict_of(const std::vector<double>& without, const std::vector<double>& with_it, double deviation,
                                         double worth, std::size_t most_runs) {
  const double least = std::log(1 + worth), mean = mean_of(without) - mean_of(with_it);
  const double error = deviation * std::sqrt(1 / static_cast<double>(without.size()) + 1 / static_cast<double>(with_it.size()));
  const bool one = with_it.size() == 1;
  if (mean >= least && mean > (one ? std::max(kClear, 4 * error) : kProof * error)) return Trial::Verdict::kept;
  const bool is_hopeless = with_it.size() >= kHopeless && mean < least / 2, is_last = with_it.size() >= most_runs;
  if (is_last && mean >= least && mean > kLastProof * error) return Trial::Verdict::kept;
  if (mean + (one ? kProof : kDisproof) * error < least || is_hopeless || is_last) return Trial::Verdict::no_gain;
  return std::nullopt;
}

Json to_json(const ShortRun& run) {
  return {{"seconds", run.seconds}, {"others", run.others}, {"shares", run.shares}, {"findings", to_json(run.findings)}};
}

Finding finding_of(const Json& json) {
  Finding finding;
  finding.id = json.value("id", "");
  finding.what = json.value("what", "");
  finding.key = json.value("key", "");
  finding.value = json.value("value", "");
  if (json.contains("gain"))
    finding.gain = Finding::Gain{json.value("gain", 0.0), json.value("gain_low", 0.0), json.value("gain_high", 0.0)};
  return finding;
}

ShortRun short_run_of(const Json& json) {
  ShortRun run;
  run.seconds = json.at("seconds");
  run.others = json.at("others");
  run.shares = json.at("shares").get<std::map<std::string, double>>();
  for (const Json& each : json.at("findings")) run.findings.push_back(finding_of(each));
  return run;
}

constexpr std::array<std::string_view, 5> kVerdicts = {"kept", "no gain", "failed", "busy machine", "not allowed"};

Trial trial_of(const Json& json) {
  Trial trial;
  trial.candidate = {.set = json.at("set").get<Settings>(),
                     .expected = json.at("expected"),
                     .finding = json.at("finding"),
                     .needs = json.at("needs"),
                     .back = json.value("back", false)};
  const std::string verdict = json.at("verdict");
  trial.verdict = static_cast<Trial::Verdict>(std::ranges::find(kVerdicts, verdict) - kVerdicts.begin());
  trial.ratio = json.at("ratio");
  trial.least = json.at("least");
  trial.most = json.at("most");
  trial.runs = json.value("runs", 0);
  trial.others = json.at("others");
  trial.hidden = json.at("hidden");
  trial.failure = json.at("failure");
  return trial;
}

}  // namespace

Tuner::Tuner(Settings config, Tuner::Options options, Runner run)
    : config_(std::move(config)), options_(std::move(options)), run_(std::move(run)), first_(run_({})), now_(first_) {
  if (first_.failure.empty() && first_.others <= kBusy) add_base(first_.seconds);
}

Tuner::Tuner(Settings config, Tuner::Options options, Runner run, const Json& state)
    : config_(std::move(config)),
      kept_(state.at("kept").get<Settings>()),
      options_(std::move(options)),
      run_(std::move(run)),
      first_(short_run_of(state.at("first"))),
      now_(short_run_of(state.at("now"))),
      noise_squares_(state.at("noise_squares")),
      noise_count_(state.at("noise_count")) {
  for (const Json& each : state.at("trials")) trials_.push_back(trial_of(each));
  given_ = trials_.size();
}

std::vector<std::string> Tuner::keys() {
  std::vector<std::string> keys = {"optim.accumulate"};
  for (const Knob& knob : kKnobs) keys.emplace_back(knob.key);
  return keys;
}

std::vector<Candidate> Tuner::single() const {
  const Settings now = with(config_, kept_);
  const auto value_of = [&](const std::string& key) {
    const auto found = now.find(key);
    return found == now.end() ? std::string() : found->second;
  };
  std::vector<Candidate> all;
  for (const Knob& knob : kKnobs) {
    const std::string key(knob.key);
    if (!now.contains(key)) continue;
    for (const Finding& finding : now_.findings) {
      if (finding.key != key || !finding.gain || finding.value == value_of(key)) continue;
      all.push_back({{{key, finding.value}}, finding.gain->likely, finding.id, std::string(knob.needs)});
    }
    const double expected = kWithoutProof * knob.most * share_of(now_, knob.accounts);
    for (const std::string& value : knob.values(value_of(key))) {
      if (key == "data.batch_size" && number(value) > kMostRows * number(config_.at(key)).value_or(1)) continue;
      const Settings set = {{key, value}};
      if (std::ranges::none_of(all, [&](const Candidate& each) { return each.set == set; }))
        all.push_back({set, expected, "", std::string(knob.needs)});
    }
  }
  const auto cut = number(value_of("optim.accumulate")), rows = number(value_of("data.batch_size"));
  if (cut && rows && *cut > 1) {  // the same global batch without accumulation, which changes the statistics of a batch norm
    all.push_back({{{"optim.accumulate", "1"}, {"data.batch_size", std::to_string(*rows * *cut)}},
                   kWithoutProof * share_of(now_, kStep) / 2,
                   "",
                   "accumulation"});
  }
  return all;
}

std::vector<Candidate> Tuner::candidates() const {
  std::vector<Candidate> all = single();
  if (const auto joint = all_at_once(all)) all.insert(all.begin(), *joint);  // tried before others of the same expected gain
  add_earlier_batches(all);
  add_back(all);
  std::ranges::stable_sort(all, std::ranges::greater(), &Candidate::expected);
  return all;
}

// Combines the most promising value of each key in one candidate. A bad config has many faults, and it would take more runs to
// try their remedies one by one.
std::optional<Candidate> Tuner::all_at_once(const std::vector<Candidate>& singles) const {
  Candidate joint;
  std::map<std::string_view, double> of_accounts;  // gains of values that shorten the same accounts are not added up
  for (const Knob& knob : kKnobs) {
    const Candidate* best = nullptr;
    for (const Candidate& each : singles) {
      const bool is_its = each.set.size() == 1 && each.set.begin()->first == knob.key && each.needs.empty() && knob.at_once;
      if (is_its && to_try(each) && (best == nullptr || each.expected > best->expected)) best = &each;
    }
    if (best == nullptr) continue;
    joint.set = with(std::move(joint.set), best->set);
    if (!best->finding.empty()) joint.finding += (joint.finding.empty() ? "" : ", ") + best->finding;
    double& most = of_accounts[knob.accounts];
    most = std::max(most, best->expected);
  }
  if (joint.set.size() < 2) return std::nullopt;
  for (const auto& [accounts, expected] : of_accounts) joint.expected += expected;
  constexpr double kMost = 0.95;
  joint.expected = std::min(joint.expected, kMost);
  return joint;
}

// If a faster step gained nothing because the next batch was late, adds a candidate that combines the faster step with a change
// that delivers batches earlier.
void Tuner::add_earlier_batches(std::vector<Candidate>& all) const {
  std::vector<Settings> earlier;
  for (const Candidate& each : all) {
    if (each.set.size() == 1 && kAgainstWaiting.contains(each.set.begin()->first)) earlier.push_back(each.set);
  }
  const std::size_t alone = all.size();
  for (const Trial& trial : trials_) {
    if (trial.verdict != Trial::Verdict::no_gain || trial.hidden < options_.worth) continue;
    for (std::size_t i = 0; i < alone; ++i) {
      if (all[i].set != trial.candidate.set) continue;  // no match if the value is no longer a candidate
      for (const Settings& batch : earlier) all.push_back({with(all[i].set, batch), trial.hidden, "", all[i].needs});
    }
  }
}

// Adds the old values of keys that were changed together, because some of the new values may gain nothing or cost time. An old
// value is tried only if the accounts allow a gain that is worth it.
void Tuner::add_back(std::vector<Candidate>& all) const {
  for (const Trial& trial : trials_) {
    if (trial.verdict != Trial::Verdict::kept || trial.candidate.set.size() < 2 || !trial.candidate.needs.empty()) continue;
    for (const Knob& knob : kKnobs) {
      const auto now = kept_.find(std::string(knob.key)), then = trial.candidate.set.find(std::string(knob.key));
      if (now == kept_.end() || then == trial.candidate.set.end() || now->second != then->second) continue;
      if (kWithoutProof * knob.most * share_of(now_, knob.accounts) < options_.worth) continue;
      const Settings before = {{now->first, config_.at(now->first)}};
      std::erase_if(all, [&](const Candidate& each) { return each.set == before; });
      all.push_back({.set = before, .expected = options_.worth, .finding = "", .needs = "", .back = true});
    }
  }
}

bool Tuner::to_try(const Candidate& candidate) const {
  // A candidate's expected gain must be at least half of `worth`, because the real gain is seldom more than twice the expected
  // one.
  if (candidate.expected < options_.worth / 2 || is_beyond(candidate)) return false;
  const auto trial =
      std::find_if(trials_.rbegin(), trials_.rend(), [&](const Trial& each) { return each.candidate.set == candidate.set; });
  if (trial == trials_.rend()) return true;
  const bool lost = trial->ratio * (1 + options_.worth) < 1 && trial->hidden < options_.worth;
  return trial->verdict == Trial::Verdict::no_gain && !lost && candidate.expected >= kTryAgain * trial->candidate.expected;
}

// True if a value between the present value and the candidate's value was tried and gained nothing.
bool Tuner::is_beyond(const Candidate& candidate) const {
  if (candidate.set.size() != 1) return false;
  const auto& [key, text] = *candidate.set.begin();
  const auto kept = kept_.find(key);
  const auto now = kept == kept_.end() ? std::nullopt : number(kept->second), value = number(text);
  return now && value && std::ranges::any_of(trials_, [&, &key = key](const Trial& trial) {
           if (trial.candidate.set.size() != 1 || trial.candidate.set.begin()->first != key) return false;
           const auto tried = number(trial.candidate.set.begin()->second);
           return tried && trial.verdict == Trial::Verdict::no_gain && *now < *tried && *tried < *value;
         });
}

double Tuner::deviation() const {
  return std::sqrt((kNoiseRuns * kNoise * kNoise + noise_squares_) / (kNoiseRuns + noise_count_));
}

void Tuner::add_noise(double from_mean) { noise_squares_ += square(std::min(std::abs(from_mean), kOutlier * deviation())); }

void Tuner::add_base(double seconds) {
  const double log = std::log(seconds);
  base_.since = 0;
  if (const auto count = static_cast<double>(base_.logs.size()); count > 0) {
    add_noise((log - mean_of(base_.logs)) * std::sqrt(count / (count + 1)));
    noise_count_ += 1;
  }
  base_.logs.push_back(log);
  if (base_.logs.size() > kPool) base_.logs.erase(base_.logs.begin());
}

// True if the next run should be a run of the baseline, because the baseline has too few runs or its last run is too long ago.
bool Tuner::wants_base(std::size_t candidate_runs) const {
  return base_.logs.empty() || base_.since >= kBetween || base_.logs.size() < std::min(candidate_runs, kPool);
}

// Makes runs of the baseline or of the trial's candidate until one counts. nullopt: no run counted, and trial.verdict says why.
std::optional<ShortRun> Tuner::run_of(Trial& trial, bool is_base) {
  for (int busy = 0;;) {
    ShortRun run = run_(is_base ? kept_ : with(kept_, trial.candidate.set));
    const bool has_failed = !run.failure.empty();
    if (!has_failed || is_base) trial.others = std::max(trial.others, run.others);
    if (run.others <= kBusy && !has_failed) return run;
    if ((is_base || !has_failed) && ++busy < kMostBusy) continue;
    trial.verdict = has_failed ? Trial::Verdict::failed : Trial::Verdict::busy;
    if (has_failed) trial.failure = (is_base ? "the run without the change: " : "") + run.failure;
    return std::nullopt;
  }
}

// Makes a run with the candidate, after the runs of the baseline that are due. False: no run counted, and trial.verdict says
// why.
bool Tuner::see(Trial& trial, Seen& seen) {
  while (wants_base(seen.logs.size())) {
    const auto base = run_of(trial, true);
    if (!base) return false;
    add_base(base->seconds);
  }
  const auto run = run_of(trial, false);
  if (!run) return false;
  ++base_.since;
  seen.logs.push_back(std::log(run->seconds));
  seen.seconds.push_back(run->seconds);
  seen.last = *run;
  trial.hidden = share_of(*run, "data_wait") - share_of(now_, "data_wait");
  return true;
}

void Tuner::note(Trial& trial, const Seen& seen) {
  for (const double each : seen.logs) add_noise(each - mean_of(seen.logs));
  noise_count_ += static_cast<double>(seen.logs.size() - 1);
  const double without = mean_of(base_.logs);
  trial.runs = static_cast<int>(seen.logs.size());
  trial.ratio = std::exp(without - mean_of(seen.logs));
  trial.least = std::exp(without - std::ranges::max(seen.logs));
  trial.most = std::exp(without - std::ranges::min(seen.logs));
}

void Tuner::judge(Trial& trial, Seen seen) {
  const std::size_t most_runs = trial.candidate.expected < kLittle ? kMostOfLittle : kMostRuns;
  std::optional<Trial::Verdict> verdict;
  while (!verdict) {
    if (!see(trial, seen)) return;
    verdict = verdict_of(base_.logs, seen.logs, deviation(), options_.worth, most_runs);
  }
  trial.verdict = *verdict;
  note(trial, seen);
  if (trial.verdict != Trial::Verdict::kept) return;
  kept_ = with(kept_, trial.candidate.set);
  now_ = seen.last;
  now_.seconds = median(seen.seconds);
  base_ = {.logs = std::move(seen.logs)};
}

// Makes a run with each of several values of a key, then measures the best of them further.
void Tuner::compete(std::vector<Trial>& values) {
  std::vector<Seen> seen(values.size());
  std::size_t best = values.size();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool counts = see(values[i], seen[i]);
    if (counts && (best == values.size() || seen[i].logs.back() < seen[best].logs.back())) best = i;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i != best && !seen[i].logs.empty()) note(values[i], seen[i]);
  }
  if (best == values.size()) return;
  std::swap(values[best], values.back());
  judge(values.back(), std::move(seen[best]));
}

std::optional<Trial> Tuner::next() {
  if (given_ == trials_.size() && !try_one()) return std::nullopt;
  return trials_[given_++];
}

bool Tuner::try_one() {
  const std::vector<Candidate> all = candidates();
  const auto first = std::ranges::find_if(all, [this](const Candidate& each) { return to_try(each); });
  if (first == all.end()) return false;
  std::vector<Trial> values = {{.candidate = *first}};
  if (!first->needs.empty() && !options_.allowed.contains(first->needs)) {
    values[0].verdict = Trial::Verdict::not_allowed;
  } else if (!options_.has_time()) {
    out_of_time_ = true;
    return false;
  } else {
    for (auto other = first + 1; other != all.end(); ++other) {
      const bool is_of_its_key = first->set.size() == 1 && other->set.size() == 1 && !first->back && !other->back &&
                                 other->set.begin()->first == first->set.begin()->first;
      if (is_of_its_key && to_try(*other)) values.push_back({.candidate = *other});
    }
    if (values.size() > 1)
      compete(values);
    else
      judge(values[0], {});
  }
  std::ranges::move(values, std::back_inserter(trials_));
  return true;
}

double Tuner::speedup() const {
  double product = 1;
  for (const Trial& trial : trials_) product *= trial.verdict == Trial::Verdict::kept ? trial.ratio : 1;
  return product;
}

Json Tuner::state() const {
  Json state = {{"kept", kept_},
                {"first", to_json(first_)},
                {"now", to_json(now_)},
                {"noise_squares", noise_squares_},
                {"noise_count", noise_count_},
                {"trials", Json::array()}};
  for (const Trial& trial : trials_) state["trials"].push_back(to_json(trial));
  return state;
}

std::string text_of(const Settings& settings) {
  return joined(settings, " ", [](const auto& setting) { return setting.first + "=" + setting.second; });
}

std::string_view word_of(Trial::Verdict verdict) noexcept { return kVerdicts[static_cast<std::size_t>(verdict)]; }

Json to_json(const Trial& trial) {
  return {{"set", trial.candidate.set},
          {"expected", trial.candidate.expected},
          {"finding", trial.candidate.finding},
          {"needs", trial.candidate.needs},
          {"back", trial.candidate.back},
          {"verdict", word_of(trial.verdict)},
          {"ratio", trial.ratio},
          {"least", trial.least},
          {"most", trial.most},
          {"runs", trial.runs},
          {"others", trial.others},
          {"hidden", trial.hidden},
          {"failure", trial.failure}};
}

}  // namespace millrace::doctor
