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
  double last = std::numeric_limits<double>::quiet_NaN();
  // For the judged metric its best value; for every other metric its value at the step where the judged one was best. NaN is
  // never best: until there is a finite value, `best` is NaN and best_step is -1.
  double best = std::numeric_limits<double>::quiet_NaN();
  std::int64_t best_step = -1;
  bool quiet = false;  // true: not shown in lines for people
  int version = 1;     // see metrics::MetricVersion
};

// Reads what write_state() writes: [last, best, best_step], and a fourth value `true` for a quiet metric. Throws SnapshotError
// for anything else, or if best_step is greater than `step`.
[[nodiscard]] Metric metric_from(const SavedJson& saved, std::int64_t step);

// The names of the metrics in a summary, in the recipe's order. `summary` may be any JSON; entries of another form are left out.
[[nodiscard]] std::vector<std::string> metrics_in_order(const Json& summary);

class Scores {
 public:
  // The results of all metrics, in the order of the last validation, which is the recipe's. Meant for a few hundred names at
  // most.
  class Metrics {
   public:
    using value_type = std::pair<std::string, Metric>;
    using const_iterator = std::vector<value_type>::const_iterator;

    Metric& operator[](std::string_view name);  // appends the metric if there is no such name
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
  // validations. Throws ConfigError if snapshot.best_metric names no metric.
  bool record(std::int64_t step, const metrics::Means& means);
  // A message of the last record(): a best value no longer counts because the definition of its metric was corrected. "" = no
  // message.
  [[nodiscard]] const std::string& forgot() const noexcept { return forgot_; }
  // True if the judged metric was among the snapshot.best_count best ones at some step since the last call of saved().
  [[nodiscard]] bool wants_save() const noexcept { return wants_save_; }
  void saved() noexcept { wants_save_ = false; }
  [[nodiscard]] std::vector<std::int64_t> best_steps() const;  // at most snapshot.best_count, the best first
  [[nodiscard]] bool stopped_improving() const;                // true if train.early_stop_patience validations passed without a
                                                               // gain
  [[nodiscard]] const Metrics& metrics() const noexcept { return metrics_; }

  [[nodiscard]] Json results() const;  // {name: {last, best, best_step, quiet, version}}; `quiet` only if it is true, `version`
                                       // only if it is not 1
  [[nodiscard]] std::vector<std::string> names() const;  // names of the metrics in their order, which results() loses because a
                                                         // JSON object is sorted
  void write_state(Json& trainer, Json& report) const;   // `trainer` is part of the snapshot's state, `report` is used in reports
                                                         // only
  void load_state(const SavedJson& trainer, const SavedJson& report);

 private:
  struct Best {
    double value = 0;
    std::int64_t step = 0;
  };
  bool rank(std::int64_t step, double value);
  void forget_other_version(const metrics::Means::MetricVersion& now);

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
