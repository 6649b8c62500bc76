// What validations measured, which of them was best, and whether the run has stopped to improve.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "millrace/core/saved_json.h"
#include "millrace/metrics/means.h"
#include "millrace/train/config.h"

namespace millrace {

struct Metric {
  double last = std::numeric_limits<double>::quiet_NaN();
  // Of the judged metric, the lowest or highest; of the others, the value at that step. NaN is never best: until there is a
  // number, `best` is NaN and best_step -1.
  double best = std::numeric_limits<double>::quiet_NaN();
  std::int64_t best_step = -1;
  bool quiet = false;  // stays out of lines for people
};

// As write_state() has it: [last, best, best_step], and true where it is quiet. SnapshotError for anything else, or a best step
// after `step`.
[[nodiscard]] Metric metric_from(const SavedJson& saved, std::int64_t step);

class Scores {
 public:
  // `loss`: the metric that judges where snapshot.best_metric is empty.
  Scores(const SnapshotConfig& snapshot, const TrainConfig& train, const std::string& loss);

  [[nodiscard]] const std::string& judged() const noexcept { return judged_; }
  // The metrics of a validation after step `step`. ConfigError when snapshot.best_metric names none of them. True: the judged
  // metric is better than ever before.
  bool note(std::int64_t step, const metrics::Means& means);
  // Whether the judged metric got among the snapshot.best_count best since the last call of saved().
  [[nodiscard]] bool wants_save() const noexcept { return wants_save_; }
  void saved() noexcept { wants_save_ = false; }
  [[nodiscard]] std::vector<std::int64_t> best_steps() const;  // best first, at most snapshot.best_count
  [[nodiscard]] bool stopped_improving() const;                // train.early_stop_patience is used up
  [[nodiscard]] const std::map<std::string, Metric>& metrics() const noexcept { return metrics_; }

  [[nodiscard]] Json results() const;  // {name: {last, best, best_step}}, and quiet where it is so
  void write_state(Json& trainer) const;
  void load_state(const SavedJson& trainer);

 private:
  struct Best {
    double value = 0;
    std::int64_t step = 0;
  };
  bool rank(std::int64_t step, double value);

  std::string judged_;
  bool named_ = false;  // by snapshot.best_metric
  bool highest_ = false;
  std::size_t keeps_ = 0;
  std::int64_t patience_ = 0;
  double least_gain_ = 0;
  std::map<std::string, Metric> metrics_;
  std::vector<Best> best_;  // best first
  bool wants_save_ = false;
  std::int64_t without_gain_ = 0;                                      // validations
  double early_stop_best_ = std::numeric_limits<double>::quiet_NaN();  // of the last gain that counted for patience
};

}  // namespace millrace
