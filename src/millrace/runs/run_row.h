// A run as a row of the table `millrace runs`, read from its files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/runs/run.h"

namespace millrace::runs {

struct RunRow {
  struct Metric {
    std::string name;
    std::optional<double> last;     // value at the last validation; nullopt: not a number
    std::optional<double> best;     // the best value of this metric, measured at best_step; nullopt: unknown
    std::optional<double> at_best;  // value at RunRow::best_step; nullopt: not measured there, or not a number
    std::int64_t best_step = 0;
    std::int64_t version = 1;  // see metrics::Means::MetricVersion
  };

  std::filesystem::path folder;
  std::string recipe;  // if no file names the recipe: the name of the parent folder
  std::int64_t step = 0;
  std::optional<double> loss;  // the training loss that was logged last
  // "running", "done: <why>", "failed", "stopped" (it can resume), "died" (it was killed or crashed, and can resume), "new" (it
  // has no snapshot yet), "unreadable: <why>". The state of a script is "running", "done", "failed", "stopped" (by a signal) or
  // "died" (it did not say why).
  std::string state;
  std::string when;                      // when the last line was written, in local time
  std::vector<Metric> metrics;           // in the recipe's order; quiet metrics are left out
  std::optional<double> step_ms;         // median
  std::optional<double> rate;            // throughput, in `rate_unit` per second
  std::string rate_unit;                 // the recipe's unit, such as "tokens", else "samples"
  std::string best_metric;               // name of the metric that selects the best snapshot, else of the recipe's first metric
  std::int64_t best_version = 1;         // version of best_metric, see metrics::Means::MetricVersion
  std::optional<double> best;            // best value of best_metric
  std::int64_t best_step = 0;            // step at which `best` was measured, if there is such a value
  std::optional<std::int64_t> findings;  // number of findings of the doctor; nullopt: the doctor was off, or the end of the log
                                         // has no line of findings
  std::string bound_by;                  // the largest account; "" = unknown
  [[nodiscard]] Json to_json() const;
};

[[nodiscard]] RunRow row_of(const Run& run);
// A row for each run folder below `root`, the newest first. A damaged file leaves its part of the row empty. A folder that can't
// be read is a row whose state has the reason.
[[nodiscard]] std::vector<RunRow> find_runs(const std::filesystem::path& root);

}  // namespace millrace::runs
