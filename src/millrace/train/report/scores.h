// The results of validations: which of them was best, and whether the run still improves.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/core/saved_json.h"
#include "millrace/metrics/means.h"
#include "millrace/train/recipe/config.h"

namespace millrace {

struct Metric {
  static constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

  double last = kNaN;
  // The lowest or highest value so far, and the step of the first validation that had this value. NaN is never the best. `best`
  // is NaN and best_step -1 if there is no number yet, or if it is unknown whether lower or higher is better.
  double best = kNaN;
  std::int64_t best_step = -1;
  // The value of this metric at the newest step at which it was measured and the judged metric had its best value so far. NaN,
  // and at_best_step -1, if there is no such step.
  double at_best = kNaN;
  std::int64_t at_best_step = -1;
  bool quiet = false;  // not shown on the console
  int version = 1;     // see metrics::Means::MetricVersion
  metrics::Means::BestIs best_is = metrics::Means::BestIs::unknown;
  bool knows_all = true;  // false: earlier validations are not known, so `best` is not known either
};

// "lowest", "highest"; "" = unknown.
[[nodiscard]] std::string_view word_of(metrics::Means::BestIs best_is);

// Reads what write_state() writes: [last, at_best, at_best_step], and for a quiet metric a fourth value, true. Throws
// SnapshotError for anything else, or if the best step is after `step`.
[[nodiscard]] Metric metric_from(const SavedJson& saved, std::int64_t step);

// The names of the metrics in a summary, in the recipe's order. `summary` may be any JSON; entries of another form are left out.
[[nodiscard]] std::vector<std::string> metrics_in_order(const Json& summary);

class Scores {
 public:
  // The results of all metrics, in the order of the last validation, which is the recipe's order. Meant for a few hundred names
  // at most.
  class Metrics {
   public:
    using value_type = std::pair<std::string, Metric>;
    using const_iterator = std::vector<value_type>::const_iterator;

    Metric& operator[](std::string_view name);  // the metric of this name, which is appended if it is missing
    [[nodiscard]] const_iterator find(std::string_view name) const noexcept;
    [[nodiscard]] const Metric& at(std::string_view name) const;  // throws std::out_of_range
    [[nodiscard]] const_iterator begin() const noexcept { return values_.begin(); }
    [[nodiscard]] const_iterator end() const noexcept { return values_.end(); }
    // Puts these names first, in this order; all other metrics follow in their previous order. Unknown names are ignored.
    void put_in_order(const std::vector<std::string>& names);

   private:
    std::vector<value_type> values_;
  };

  // `loss`: the name of the metric that selects the best snapshot if snapshot.best_metric is empty.
  Scores(const SnapshotConfig& snapshot, const TrainConfig& train, const std::string& loss);

  [[nodiscard]] const std::string& judged() const noexcept { return judged_; }
  // Records the metrics of a validation after step `step`. Returns true if the judged metric is better than in all earlier
  // validations. At step 0 the judged metric is never the best, because no snapshot holds that state. Throws ConfigError if
  // snapshot.best_metric names no metric, or if snapshot.best_is is the worst value of a metric whose direction is known.
  bool record(std::int64_t step, const metrics::Means& means);
  // A message of the last record() or load_state(): it says that best values no longer count, because the definition of their
  // metric was corrected or because another metric judges now. "" = no message.
  [[nodiscard]] const std::string& forgot() const noexcept { return forgot_; }
  // True if the judged metric has had a value among its snapshot.best_count best values since the last call of saved().
  [[nodiscard]] bool wants_save() const noexcept { return wants_save_; }
  void saved() noexcept { wants_save_ = false; }
  [[nodiscard]] std::vector<std::int64_t> best_steps() const;  // the steps of the best values, the best first; at most
                                                               // snapshot.best_count
  [[nodiscard]] bool stopped_improving() const;  // true if the last train.early_stop_patience validations brought no gain
  [[nodiscard]] const Metrics& metrics() const noexcept { return metrics_; }

  // {name: {last, best, best_step, at_best}}; unknown values are null. best_is, quiet and version are left out if they are
  // unknown, false and 1, respectively. at_best: the value at the step of judged_result().
  [[nodiscard]] Json results() const;
  [[nodiscard]] Json judged_result()
      const;  // {metric, is, value, step} of the judged metric's best value; null until there is a number
  [[nodiscard]] std::vector<std::string> names() const;  // names of the metrics in the recipe's order, which a JSON object does
                                                         // not keep
  void write_state(Json& trainer, Json& report) const;   // the trainer's part of a snapshot, and the part used only in reports
  void load_state(const SavedJson& trainer, const SavedJson& report);

 private:
  struct Best {
    double value = 0;
    std::int64_t step = 0;
  };
  bool rank(std::int64_t step, double value);
  void record_own(Metric& metric, std::int64_t step, const metrics::Means& means, const metrics::Means::value_type& now) const;
  [[nodiscard]] std::int64_t judged_step() const;  // the step of the judged metric's best value; -1: there is no number yet
  void forget_other_version(const metrics::Means::MetricVersion& now);
  void load_bests(const SavedJson& report);

  std::string judged_;
  bool named_ = false;  // true: snapshot.best_metric names the judged metric
  bool highest_ = false;
  std::size_t keeps_ = 0;
  std::int64_t patience_ = 0;
  double least_gain_ = 0;
  Metrics metrics_;
  std::vector<Best> best_;  // the best first
  bool wants_save_ = false;
  std::string forgot_;
  std::int64_t without_gain_ = 0;                                      // number of validations since the last gain
  double early_stop_best_ = std::numeric_limits<double>::quiet_NaN();  // value of the judged metric at the last gain that was
                                                                       // large enough to count
};

}  // namespace millrace
