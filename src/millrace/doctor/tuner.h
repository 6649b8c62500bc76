// A search for the values of a config that make its run faster. What is promised a gain and changes nothing of the training is
// tried first, all at once; then each candidate that is left, in the order of the gain to expect, of several values of a key the
// one that is best in a run of each; then whether each value that came in with others is needed. A candidate is measured in short
// runs; every third run at least is one of the best so far, and the latest of those are what it is compared with. The runs
// themselves are the caller's.
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

// What a short run showed.
struct ShortRun {
  double seconds = 0;                    // of the loop for a sample, without validations
  double others = 0;                     // part of the time in which other programs had the cores
  std::map<std::string, double> shares;  // of the loop, by account
  std::vector<Finding> findings;
  std::string failure;  // why it ended early; "" = it did not
};
using Runner = std::function<ShortRun(const Settings& changed)>;

struct Candidate {
  Settings set;
  double expected = 0;  // part of the time that may go: by the doctor's finding, else half of what the accounts leave to gain
  std::string finding;  // its id, of more values their ids; "" = the accounts alone speak for it
  std::string needs;    // the word that allows it, since it makes another training: "precision"; "" = it does not
  bool back = false;    // the value from before, of a key that was kept together with others: is it needed?
};

struct Trial {
  enum class Verdict { kept, no_gain, failed, busy, not_allowed };
  Candidate candidate;
  Verdict verdict = Verdict::no_gain;
  double ratio = 0, least = 0, most = 0;  // of speeds, with to without: mean and range of its runs
  int runs = 0;                           // with it, that count
  double others = 0;                      // as in ShortRun, the most
  double hidden = 0;                      // part of the time by which waiting for data grew with it
  std::string failure;                    // of a run with the candidate
  [[nodiscard]] double gain() const { return ratio > 0 ? 1 - 1 / ratio : 0; }  // part of the time that went
};

struct TunerOptions {
  std::set<std::string> allowed;  // words of Candidate::needs
  double worth = 0.03;            // gain in speed below which a candidate is not kept, nor tried when no more can be had
  std::function<bool()> has_time = [] { return true; };  // for another trial
};

// One thread's.
class Tuner {
 public:
  // `config`: what the run has now, of each key in keys(). A first run is made at once; ShortRun::failure of it is the caller's
  // to look at before next().
  Tuner(Settings config, TunerOptions options, Runner run);
  Tuner(Settings config, TunerOptions options, Runner run, const Json& state);  // goes on from state()

  [[nodiscard]] static std::vector<std::string> keys();  // that it may set
  std::optional<Trial> next();                           // nullopt: nothing is left, or no time
  [[nodiscard]] bool out_of_time() const noexcept { return out_of_time_; }
  [[nodiscard]] const Settings& kept() const noexcept { return kept_; }
  [[nodiscard]] const ShortRun& first() const noexcept { return first_; }
  [[nodiscard]] const ShortRun& now() const noexcept { return now_; }
  [[nodiscard]] const std::vector<Trial>& trials() const noexcept { return trials_; }
  [[nodiscard]] std::vector<Candidate> candidates() const;  // for the run as it is now, the greatest gain first
  [[nodiscard]] double speedup() const;                     // product of the ratios that were kept
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
  void add_noise(double from_mean);  // of the logarithm of a run's time
  void add_base(double seconds);
  [[nodiscard]] double deviation() const;  // of the logarithm of a run's time: of all runs so far

  Settings config_, kept_;
  TunerOptions options_;
  Runner run_;
  ShortRun first_, now_;
  std::vector<Trial> trials_;
  std::size_t told_ = 0;  // of them, by next()
  // Runs with what is kept and nothing else: what the next trials are compared with. Not part of the state: another process
  // measures them anew.
  struct Base {
    std::vector<double> logs;  // of seconds, the latest few
    int since = 0;             // runs with candidates after the last of them
  };
  Base base_;
  double noise_squares_ = 0, noise_count_ = 0;  // of those logarithms, within their trials and among those of the base
  bool out_of_time_ = false;
};

[[nodiscard]] std::string text_of(const Settings& settings);              // "data.workers=2 data.cache=ram"
[[nodiscard]] std::string_view word_of(Trial::Verdict verdict) noexcept;  // "kept", "no gain"
[[nodiscard]] Json to_json(const Trial& trial);

}  // namespace millrace::doctor
