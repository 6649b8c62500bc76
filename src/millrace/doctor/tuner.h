// A search for config values that make a run faster. First all values that promise a gain without changing the training are tried
// at once. Then each remaining candidate is tried, by expected gain; several values of one key first compete in a run each. Last,
// each of the values that were kept together is tested. A candidate is measured in short runs; at least every third run uses the
// best config so far, and the latest of those are the baseline. The caller does the runs.
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

using Settings = std::map<std::string, std::string>;  // dotted key -> value, as a flag has it

// The result of a short run.
struct ShortRun {
  double seconds = 0;                    // the loop's time per sample, without validations
  double others = 0;                     // share of the time in which other programs used the cores
  std::map<std::string, double> shares;  // shares of the loop's time, by account
  std::vector<Finding> findings;
  std::string failure;  // why the run ended early; "" = it did not
};
using Runner = std::function<ShortRun(const Settings& changed)>;

struct Candidate {
  Settings set;
  double expected = 0;  // share of time that may be saved: from the doctor's finding, else half of what the accounts allow
  std::string finding;  // id of the candidate's finding, or ids for several values; "" = only the accounts suggest it
  std::string needs;    // word that allows a candidate that changes the training: "precision"; "" = it changes nothing
  bool back = false;    // tries the old value of a key that was kept together with others
};

struct Trial {
  enum class Verdict { kept, no_gain, failed, busy, not_allowed };
  Candidate candidate;
  Verdict verdict = Verdict::no_gain;
  double ratio = 0, least = 0, most = 0;  // ratio of speeds with and without the candidate: mean and range of its runs
  int runs = 0;                           // valid runs with the candidate
  double others = 0;                      // largest value of ShortRun::others
  double hidden = 0;                      // growth of the share of time spent waiting for data
  std::string failure;                    // error of a run with the candidate
  [[nodiscard]] double gain() const { return ratio > 0 ? 1 - 1 / ratio : 0; }  // share of time that was saved
};

// Used by one thread.
class Tuner {
 public:
  struct Options {
    std::set<std::string> allowed;                         // allowed words of Candidate::needs
    double worth = 0.03;                                   // least gain in speed for keeping a candidate, or for trying it
    std::function<bool()> has_time = [] { return true; };  // true if there is time for another trial
  };

  // `config`: the run's current value of each key in keys(). Does a first run at once; the caller checks its ShortRun::failure
  // before next().
  Tuner(Settings config, Options options, Runner run);
  Tuner(Settings config, Options options, Runner run, const Json& state);  // resumes from state()

  [[nodiscard]] static std::vector<std::string> keys();  // keys that it may set
  std::optional<Trial> next();                           // nullopt if nothing is left to try, or no time
  [[nodiscard]] bool out_of_time() const noexcept { return out_of_time_; }
  [[nodiscard]] const Settings& kept() const noexcept { return kept_; }
  [[nodiscard]] const ShortRun& first() const noexcept { return first_; }
  [[nodiscard]] const ShortRun& now() const noexcept { return now_; }
  [[nodiscard]] const std::vector<Trial>& trials() const noexcept { return trials_; }
  [[nodiscard]] std::vector<Candidate> candidates() const;  // candidates for the current config, greatest gain first
  [[nodiscard]] double speedup() const;                     // product of the kept ratios
  [[nodiscard]] Json state() const;

 private:
  [[nodiscard]] std::vector<Candidate> single() const;
  [[nodiscard]] std::optional<Candidate> all_at_once(const std::vector<Candidate>& singles) const;
  void add_earlier_batches(std::vector<Candidate>& all) const;
  void add_back(std::vector<Candidate>& all) const;
  [[nodiscard]] bool to_try(const Candidate& candidate) const;
  [[nodiscard]] bool is_beyond(const Candidate& candidate) const;
  struct Seen {  // runs with a candidate
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
  void add_noise(double from_mean);  // adds the distance of a run's logarithm of time from the mean
  void add_base(double seconds);
  [[nodiscard]] double deviation() const;  // standard deviation of the logarithm of a run's time, over all runs so far

  Settings config_, kept_;
  Options options_;
  Runner run_;
  ShortRun first_, now_;
  std::vector<Trial> trials_;
  std::size_t given_ = 0;  // number of trials that next() has returned
  // Runs with only the kept values: the baseline of the next trials. Not part of the state: another process measures them anew.
  struct Base {
    std::vector<double> logs;  // logarithms of the latest runs' seconds
    int since = 0;             // runs with candidates since the last baseline run
  };
  Base base_;
  double noise_squares_ = 0, noise_count_ = 0;  // sums over the logarithms' deviations, within trials and among baseline runs
  bool out_of_time_ = false;
};

[[nodiscard]] std::string text_of(const Settings& settings);              // "data.workers=2 data.cache=ram"
[[nodiscard]] std::string_view word_of(Trial::Verdict verdict) noexcept;  // "kept", "no gain"
[[nodiscard]] Json to_json(const Trial& trial);

}  // namespace millrace::doctor
