// Searches for config values that make a run faster. A candidate is a set of values to try. The first candidate combines all
// values that promise a gain and do not change the training. Then each remaining candidate is tried, the candidate with the
// largest expected gain first. If several values of a key are candidates, they first compete, each in a separate run. Finally,
// each value that was kept together with others is tested against the old value. A candidate is measured in short runs. At least
// every third run uses the best config so far; the latest of these runs are the baseline. The caller makes the runs.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/doctor/finding.h"

namespace millrace::doctor {

using Settings = std::map<std::string, std::string>;  // dotted key -> value as in a flag

// The measurements of a short run.
struct ShortRun {
  double seconds = 0;                    // time of the loop for a sample, without validations
  double others = 0;                     // share of the time in which other programs used the cores
  std::map<std::string, double> shares;  // account -> share of the loop's time
  std::vector<Finding> findings;
  std::string failure;  // why the run ended early; "" = it did not end early
};
using Runner = std::function<ShortRun(const Settings& changed)>;

struct Candidate {
  Settings set;
  double expected = 0;  // share of the time that the candidate may save: the gain in the doctor's finding, or half of what the
                        // accounts allow if there is no finding
  std::string finding;  // id of the finding that suggests the candidate; several ids for several values; "" = only the accounts
                        // suggest it
  std::string needs;  // a word that the user must allow, because the candidate changes the training: "precision"; "" = no change
  bool back = false;  // true: the candidate tries a key's old value again, because the new value was kept with others and may
                      // not help alone
};

struct Trial {
  enum class Verdict { kept, no_gain, failed, busy, not_allowed };
  Candidate candidate;
  Verdict verdict = Verdict::no_gain;
  double ratio = 0, least = 0, most = 0;  // speed with the candidate / speed without: mean and range of its runs
  int runs = 0;                           // number of valid runs with the candidate
  double others = 0;                      // largest value of ShortRun::others
  double hidden = 0;                      // by how much the candidate increases the share of time spent waiting for data
  std::string failure;                    // the error of a run with the candidate
  [[nodiscard]] double gain() const { return ratio > 0 ? 1 - 1 / ratio : 0; }  // share of the time that the candidate saves
};

// Used by one thread.
class Tuner {
 public:
  struct Options {
    std::set<std::string> allowed;                         // words of Candidate::needs that the user allows
    double worth = 0.03;                                   // the least gain in speed for which a candidate is tried or kept
    std::function<bool()> has_time = [] { return true; };  // false: there is no time for another trial
  };

  // `config`: the present value of each key in keys(). Makes a first run at once; the caller must check first().failure before
  // it calls next().
  Tuner(Settings config, Options options, Runner run);
  Tuner(Settings config, Options options, Runner run, const Json& state);  // continues from state() of an earlier process

  [[nodiscard]] static std::vector<std::string> keys();  // the config keys that the tuner may set
  std::optional<Trial> next();  // makes the next trial; nullopt if nothing is left to try, or if there is no time
  [[nodiscard]] bool out_of_time() const noexcept { return out_of_time_; }
  [[nodiscard]] const Settings& kept() const noexcept { return kept_; }
  [[nodiscard]] const ShortRun& first() const noexcept { return first_; }
  [[nodiscard]] const ShortRun& now() const noexcept { return now_; }
  [[nodiscard]] const std::vector<Trial>& trials() const noexcept { return trials_; }
  [[nodiscard]] std::vector<Candidate> candidates() const;  // candidates for the best config so far, the largest expected gain
                                                            // first
  [[nodiscard]] double speedup() const;                     // product of the ratios of the kept candidates
  [[nodiscard]] Json state() const;

 private:
  [[nodiscard]] std::vector<Candidate> single() const;
  [[nodiscard]] std::optional<Candidate> all_at_once(const std::vector<Candidate>& singles) const;
  void add_earlier_batches(std::vector<Candidate>& all) const;
  void add_back(std::vector<Candidate>& all) const;
  [[nodiscard]] bool to_try(const Candidate& candidate) const;
  [[nodiscard]] bool is_beyond(const Candidate& candidate) const;
  struct Seen {  // the measurements of the runs with a candidate
    std::vector<double> logs, seconds;
    ShortRun last;
  };
  bool try_one();
  void compete(std::vector<Trial>& values);
  void judge(Trial& trial, Seen seen);
  bool see(Trial& trial, Seen& seen);
  std::optional<ShortRun> run_of(Trial& trial, bool is_base);
  void note(Trial& trial, const Seen& seen);
  [[nodiscard]] bool wants_base(std::size_t candidate_runs) const;
  void add_noise(double from_mean);  // adds the deviation of a run's log(time) from the mean
  void add_base(double seconds);
  [[nodiscard]] double deviation() const;  // standard deviation of a run's log(time), over all runs so far

  Settings config_, kept_;
  Options options_;
  Runner run_;
  ShortRun first_, now_;
  std::vector<Trial> trials_;
  std::size_t given_ = 0;  // number of trials that next() has returned
  // The baseline of the next trials: runs with only the kept values. The baseline is not part of the state, because another
  // process must measure again.
  struct Base {
    std::vector<double> logs;  // log(seconds) of the latest runs
    int since = 0;             // number of runs with candidates since the last run of the baseline
  };
  Base base_;
  // deviations of log(time) within trials and within the baseline: the sum of their squares, and their degrees of freedom
  double noise_squares_ = 0, noise_count_ = 0;
  bool out_of_time_ = false;
};

[[nodiscard]] std::string text_of(const Settings& settings);              // "data.workers=2 data.cache=ram"
[[nodiscard]] std::string_view word_of(Trial::Verdict verdict) noexcept;  // "kept", "no gain"
[[nodiscard]] Json to_json(const Trial& trial);

}  // namespace millrace::doctor
