// What validations measured, which of them was best, and whether the run has stopped to improve.
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
  // Of the judged metric, the lowest or highest; of the others, the value at that step. NaN is never best: until there is a
  // number, `best` is NaN and best_step -1.
  double best = std::numeric_limits<double>::quiet_NaN();
  std::int64_t best_step = -1;
  bool quiet = false;  // stays out of lines for people
  int version = 1;     // see metrics::MetricVersion
};

// As write_state() has it: [last, best, best_step], and true where it is quiet. SnapshotError for anything else, or a best step
// after `step`.
[[nodiscard]] Metric metric_from(const SavedJson& saved, std::int64_t step);

// The names below "metrics" of a summary, in the recipe's order, as far as the summary (any JSON) tells.
[[nodiscard]] std::vector<std::string> metrics_in_order(const Json& summary);

// What was measured of each metric, in the order of the last validation: the recipe's. A few hundred names at most.
class Metrics {
 public:
  using value_type = std::pair<std::string, Metric>;
  using const_iterator = std::vector<value_type>::const_iterator;

  Metric& operator[](std::string_view name);  // added at the end where it is missing
  [[nodiscard]] const_iterator find(std::string_view name) const noexcept;
  [[nodiscard]] const Metric& at(std::string_view name) const;  // std::out_of_range
  [[nodiscard]] const_iterator begin() const noexcept { return values_.begin(); }
  [[nodiscard]] const_iterator end() const noexcept { return values_.end(); }
  // These names first, in their order; the others after them, as they stood. Names that are not there are passed over.
  void put_in_order(const std::vector<std::string>& names);

 private:
  std::vector<value_type> values_;
};

class Scores {
 public:
  // `loss`: the metric that judges where snapshot.best_metric is empty.
  Scores(const SnapshotConfig& snapshot, const TrainConfig& train, const std::string& loss);

  [[nodiscard]] const std::string& judged() const noexcept { return judged_; }
  // The metrics of a validation after step `step`. ConfigError when snapshot.best_metric names none of them. True: the judged
  // metric is better than ever before.
  bool record(std::int64_t step, const metrics::Means& means);
  // Whether the judged metric got among the snapshot.best_count best since the last call of saved().
  // What the last record() has to say: a best value that no longer counts, since what it measures was mended; "" = nothing.
  [[nodiscard]] const std::string& forgot() const noexcept { return forgot_; }
  [[nodiscard]] bool wants_save() const noexcept { return wants_save_; }
  void saved() noexcept { wants_save_ = false; }
  [[nodiscard]] std::vector<std::int64_t> best_steps() const;  // best first, at most snapshot.best_count
  [[nodiscard]] bool stopped_improving() const;                // train.early_stop_patience is used up
  [[nodiscard]] const Metrics& metrics() const noexcept { return metrics_; }

  [[nodiscard]] Json results() const;  // {name: {last, best, best_step}}, with quiet and version where they are not false and 1
  [[nodiscard]] std::vector<std::string> names() const;  // of the metrics, in their order: a JSON object has none
  void write_state(Json& trainer, Json& report) const;   // the trainer's part of a snapshot, and what is for reports alone
  void load_state(const SavedJson& trainer, const SavedJson& report);

 private:
  struct Best {
    double value = 0;
    std::int64_t step = 0;
  };
  bool rank(std::int64_t step, double value);
  void forget_other_version(const metrics::MetricVersion& now);

  std::string judged_;
  bool named_ = false;  // by snapshot.best_metric
  bool highest_ = false;
  std::size_t keeps_ = 0;
  std::int64_t patience_ = 0;
  double least_gain_ = 0;
  Metrics metrics_;
  std::vector<Best> best_;  // best first
  bool wants_save_ = false;
  std::string forgot_;
  std::int64_t without_gain_ = 0;                                      // validations
  double early_stop_best_ = std::numeric_limits<double>::quiet_NaN();  // of the last gain that counted for patience
};

}  // namespace millrace
